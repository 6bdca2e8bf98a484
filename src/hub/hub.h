// Joins the engines of several processes: a switch with one port for each connected process. Two
// rings in shared memory connect a process to its port.
//
// The hub has no thread: a loop calls it. It polls only the rings of processes that may have
// frames. A process that sends into an empty ring wakes the hub by an eventfd. After the last frame
// the hub keeps polling for a moment if that has found frames before.
//
// All processes belong to one user, but they are not trusted: a process that breaks the rules is
// disconnected. A process that does not drain its ring delays only those that send to it, for a
// tenth of a second at most.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fabric/mac_table.h"
#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "fabric/tap.h"
#include "hub/link_note.h"
#include "hub/numbers.h"
#include "hub/other_hubs.h"
#include "hub/patience.h"
#include "hub/request.h"
#include "hub/station.h"
#include "os/adaptive_poll.h"
#include "os/event_loop.h"
#include "os/janitor.h"
#include "os/spare_descriptor.h"
#include "os/unique_fd.h"
#include "util/log.h"
#include "util/result.h"

namespace softhca::hub {

class Hub {
 public:
  struct Options {
    /// Sees all frames that cross the switch. Must outlive the hub.
    fabric::Tap* tap = nullptr;
    /// Hubs of other machines; null: none. Must outlive the hub.
    OtherHubs* others = nullptr;
    std::size_t clients_max = 4096;
    /// Numbers of processes: see numbers.h.
    unsigned number_max = 0xfffe;
    unsigned first_block = 0;
    Numbers::Claim claim_block = nullptr;
    /// Bytes of each of a process's two rings.
    std::size_t ring_capacity = fabric::RingPort::kCapacity;
    /// Bytes of each of the two rings of a link between processes with much traffic. With a tap
    /// there are no links, as the tap would miss their frames.
    std::size_t link_capacity = std::size_t{2} << 20;
    /// The UDP port of RoCEv2, which processes can ask for at the addresses of this machine.
    std::uint16_t roce_port = spec::infiniband::kRoceV2UdpPort;
    /// How long to poll for the next frame before going to sleep. Zero: not at all.
    util::Duration poll = std::chrono::microseconds(20);
    util::TimeSource clock = util::monotonic_now;
    /// Called when process `number` gets a block of QP numbers, and with 0 when it leaves. Block 0:
    /// the station of shared addresses. May be empty.
    std::function<void(RoceBlock block, unsigned number)> publish_block = {};
  };
  struct Counters {
    std::uint64_t joined = 0;
    std::uint64_t left = 0;         ///< processes that closed their socket
    std::uint64_t expelled = 0;     ///< processes disconnected for breaking the rules
    std::uint64_t refused = 0;      ///< another user's, too many, or no resources
    std::uint64_t frames = 0;       ///< taken out of rings
    std::uint64_t dropped = 0;      ///< for processes that did not keep up
    std::uint64_t links = 0;        ///< given to pairs of processes
    std::uint64_t to_departed = 0;  ///< frames to processes that have left
  };

  /// Listens at `socket_path`; the hub removes the file when it ends. `loop` must outlive it.
  static util::Result<std::unique_ptr<Hub>> create(os::EventLoop& loop,
                                                   const std::string& socket_path, Options options);
  static util::Result<std::unique_ptr<Hub>> create(os::EventLoop& loop,
                                                   const std::string& socket_path) {
    return create(loop, socket_path, Options{});
  }
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  std::size_t clients() const { return clients_.size(); }
  const Counters& counters() const { return counters_; }
  const Station& station() const { return station_; }

 private:
  struct Client;

  Hub(os::EventLoop& loop, std::string socket_path, const Options& options);
  util::Result<void> listen();
  void accept();
  /// Takes the socket if it admits its process.
  util::Result<void> admit(os::UniqueFd& socket);
  util::Result<void> watch(Client& client);
  void handle_socket(Client& client);
  bool serve(Client& client, const Request& request);
  void catch_up(unsigned number);
  bool forward(unsigned number, const ForwardedDatagram& datagram);
  bool drain_departed(Client& client);
  void handle_bell(Client& client);
  void remove(Client& client);
  void expel(Client& client, const char* reason);

  /// Moves frames, and schedules the next call while there may be more.
  void turn();
  std::size_t receive();
  void settle();
  void report_loss(Client& client);
  Client* find(unsigned number) const;
  bool must_wait(const Client& client, std::span<const std::byte> frame);
  bool is_full(Client& client);
  Client* find_station(std::span<const std::byte> frame) const;
  // Hubs of other machines (hub_links.cc).
  void attach_others();
  std::size_t take_from_others();
  void poll_soon();
  bool note(Client& client, LinkNote::Kind kind, unsigned about);
  void report_departures(Client& client);
  std::size_t take_frames(Client& client);
  bool consumes(Client& client, std::span<const std::byte> frame);
  void count_frame(Client& client, unsigned to);
  void introduce(Client& a, Client& b);
  void warn(std::string_view text);
  unsigned next_number();
  void give_back_numbers();
  void begin_station();

  os::EventLoop& loop_;
  const std::string socket_path_;
  const Options options_;
  os::UniqueFd listener_;
  os::SpareDescriptor spare_;
  os::Janitor janitor_;  ///< closes what processes send and leave behind
  fabric::Switch switch_;
  std::vector<std::unique_ptr<Client>> clients_;
  /// Clients whose rings are polled; any other signals its eventfd first
  std::vector<Client*> active_;
  std::map<unsigned, Client*> by_number_;  ///< null: the number of station_
  fabric::MacTable stations_{4096};        ///< client numbers by foreign source MAC
  bool held_ = false;                      ///< some frame waited for room in the last round
  os::UniqueFd timer_;                     ///< wakes the hub to retry then
  Numbers numbers_;
  os::AdaptivePoll poll_;
  os::EventLoop::Notice work_;
  Patience tap_patience_{1};  ///< any progress counts: the file is the user's own
  util::RateLimiter warnings_{10, std::chrono::seconds(10)};
  Counters counters_;
  Station station_;
};

}  // namespace softhca::hub
