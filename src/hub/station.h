// The station of the addresses that processes share. Its MAC stands for all of these addresses: the
// processes name it in ARP and Neighbor Discovery, so all give the same answer. The hub gives it a
// number of its own, and it steers what is sent to it:
//
// - a packet of RoCE goes to the process that has the block of its destination QPN;
// - a packet to QP1 goes to the process for which the communication manager's message is;
// - a message of ARP or Neighbor Discovery goes to each of the processes, as each may have asked.
//
// All other frames are dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/passing_port.h"
#include "fabric/ring_pair.h"
#include "hub/roce_requests.h"
#include "hub/station_frame.h"
#include "wire/frame.h"
#include "wire/mac_address.h"

namespace softhca::hub {

class Station {
 public:
  struct Counters {
    std::uint64_t packets = 0;     ///< to the process of a block
    std::uint64_t messages = 0;    ///< to QP1, for a process
    std::uint64_t neighbors = 0;   ///< messages of ARP and Neighbor Discovery
    std::uint64_t no_process = 0;  ///< dropped: no process has the block, or listens
    std::uint64_t unfit = 0;       ///< dropped: any other frame
  };

  /// As RoceRequests.
  Station(os::EventLoop& loop, const RoceHost::Options& options, RoceHost::Deliver deliver)
      : requests_(loop, options, std::move(deliver)) {}

  /// Requests of processes about shared addresses.
  RoceRequests& requests() { return requests_; }
  const RoceHost& host() const { return requests_.host(); }

  /// 0: there is none yet.
  unsigned number() const { return number_; }
  /// Called once. `port`: the station's own.
  void begin(unsigned number, std::unique_ptr<fabric::Port> port) {
    number_ = number;
    port_ = std::move(port);
  }
  /// Whether a frame with this Ethernet header is for the station.
  bool is_for(std::span<const std::byte> header) const;
  /// The process to which a packet goes, if not to QP1. 0: none. @pre is_for(head)
  unsigned process_of(std::span<const std::byte> head) const;

  /// Decides about a frame of process `sender`, or of a station behind it, and changes its
  /// destination. Packets wait for room like those with the process's own address. Messages to QP1
  /// and of neighbors do not: their senders repeat them. `is_full(number)`: whether the process has
  /// no room. @pre is_for(frame.link_header())
  fabric::Verdict steer(wire::Frame& frame, unsigned sender,
                        const std::function<bool(unsigned number)>& is_full);
  /// The same for a frame of another machine. True: the switch delivers it.
  bool steer_remote(wire::Frame& frame) {
    return steer(frame, 0, [](unsigned) { return false; }) == fabric::Verdict::kGoes;
  }
  /// Transmits what steer() has left to the station's own port: frames for all processes, and for
  /// their sender.
  void flush();

  const Counters& counters() const { return counters_; }

 private:
  /// The destination of a frame.
  struct Target {
    unsigned number = 0;  ///< of a process; 0: none, or all
    bool to_all = false;
  };
  Target find_target(const wire::Frame& frame, unsigned sender);
  Target find_target_of_message(const StationFrame& parsed, const wire::Frame& frame,
                                unsigned sender);
  void send(const wire::Frame& frame, unsigned number);

  RoceRequests requests_;
  unsigned number_ = 0;
  std::unique_ptr<fabric::Port> port_;  ///< null before begin()
  std::vector<wire::Frame> frames_;     ///< for flush()
  Counters counters_;
};

/// A port in front of another that steers transmitted frames for the station.
class StationPort final : public fabric::PassingPort {
 public:
  StationPort(std::unique_ptr<fabric::Port> below, Station& station)
      : PassingPort(*below), below_(std::move(below)), station_(station) {}

  std::uint64_t transmit(const wire::Frame& frame) override {
    if (!station_.is_for(frame.link_header())) return last_ = below_->transmit(frame);
    auto changed = frame;
    if (station_.steer_remote(changed)) last_ = below_->transmit(changed);
    station_.flush();
    return last_;
  }

 private:
  std::unique_ptr<fabric::Port> below_;
  Station& station_;
  std::uint64_t last_ = 0;  ///< number of the last frame that was transmitted
};

}  // namespace softhca::hub
