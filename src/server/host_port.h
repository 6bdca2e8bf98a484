// `softhca serve --port tap:NAME` and `--port packet:IF`: connects a switch of the server to a
// network of the host, by a TAP device or a packet socket.
//
// On this side of it a packet may refer to memory, lack its ICRC or be part of a train. On the
// other side it is on a wire: single packets, complete, no longer than the MTU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/port.h"
#include "fabric/switch.h"
#include "os/event_loop.h"
#include "os/frame_file.h"
#include "os/network_interface.h"
#include "util/inspect.h"
#include "util/result.h"

namespace softhca::server {

class HostPort final : public fabric::Receiver {
 public:
  /// Most packets taken from the network in one turn of the loop, besides the rest of a merged
  /// frame.
  static constexpr std::size_t kPacketsPerTurn = 64;
  /// Bytes from the network that the switch may refer to. If they are not delivered, no more are
  /// read, and the kernel's queue fills.
  static constexpr std::size_t kMemory = std::size_t{1} << 20;

  /// Numbers of packets.
  struct Counters {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    // Packets for the network that were dropped.
    std::uint64_t no_carrier = 0;
    std::uint64_t above_mtu = 0;
    std::uint64_t queue_full = 0;  ///< the kernel's
    std::uint64_t unreadable = 0;  ///< the guest has taken their memory away
    std::uint64_t refused = 0;     ///< the kernel reports another error
    // Frames from the network that were dropped.
    std::uint64_t received_too_long = 0;
    std::uint64_t received_unfit = 0;  ///< merged, and cannot be taken apart
  };

  /// `name`: the argument of --port. `loop` and `network` outlive it.
  static util::Result<std::unique_ptr<HostPort>> create(os::EventLoop& loop,
                                                        fabric::Switch& network, std::string name,
                                                        std::unique_ptr<os::FrameFile> file);
  ~HostPort() override;
  HostPort(const HostPort&) = delete;
  HostPort& operator=(const HostPort&) = delete;

  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}  // nothing is looped back

  /// True while the interface is up and has a link partner.
  bool carrier() const { return interface_.state().carrier; }
  /// Work of sending since the last call (util::WorkBudget).
  std::int64_t take_work();

  const Counters& counters() const { return counters_; }
  void inspect(util::InspectNode& out) const;

 private:
  HostPort(os::EventLoop& loop, fabric::Switch& network, std::string name,
           std::unique_ptr<os::FrameFile> file, os::NetworkInterface interface);
  util::Result<void> watch();
  void leave();
  void receive();
  /// False: nothing more can be received now.
  bool receive_frame(std::size_t& packets);
  void follow();
  void report_link() const;
  std::uint64_t& send(const wire::Frame& frame);

  os::EventLoop& loop_;
  const std::string name_;
  std::unique_ptr<os::FrameFile> file_;
  os::NetworkInterface interface_;
  std::vector<std::byte> memory_;  ///< of frames from the network
  std::size_t used_ = 0;           ///< bytes of it
  std::uint64_t last_ = 0;         ///< number of the last frame from the network
  std::int64_t work_ = 0;
  Counters counters_;
  std::unique_ptr<fabric::Port> port_;  ///< destroyed first: its frames refer to the memory
};

}  // namespace softhca::server
