// Connects ports within one process: a learning Ethernet switch (IEEE 802.1Q 8.6 to 8.8) without
// VLANs, or a switch of another link, whose forwarder decides where frames go. It also carries
// frames that a port loops back to itself, so that a capture shows them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fabric/forwarder.h"
#include "fabric/frame_queue.h"
#include "fabric/mac_table.h"
#include "fabric/port.h"
#include "fabric/tap.h"
#include "wire/mac_address.h"

namespace softhca::fabric {

class Switch {
 public:
  struct Options {
    std::size_t queue_frames_max = 65536;
    std::size_t macs_max = 4096;
    /// Senders may queue trains (wire/train.h). False: single packets, for comparison.
    bool trains = true;
  };
  struct Counters {
    std::uint64_t delivered = 0;    ///< to a receiver; a flooded frame counts once per receiver
    std::uint64_t flooded = 0;      ///< frames sent to all other ports
    std::uint64_t looped_back = 0;  ///< frames that their sender looped back
    std::uint64_t filtered = 0;     ///< the destination station is on the ingress port
    std::uint64_t dropped_queue_full = 0;   ///< transmitted while the queue was at its limit
    std::uint64_t dropped_no_receiver = 0;  ///< the egress port has no receiver
    std::uint64_t dropped_malformed = 0;    ///< shorter than an Ethernet header
    std::uint64_t dropped_no_way = 0;       ///< the forwarder knows no egress port
    std::uint64_t dropped_port_gone = 0;    ///< still queued when their port was destroyed
    std::uint64_t dropped_no_memory =
        0;  ///< the sender's memory became invalid, and none was left for a copy
  };

  Switch() : Switch(Options{}) {}
  explicit Switch(const Options& options);
  /// @pre all ports are destroyed
  ~Switch();
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  /// Makes a port, which exists until it is destroyed. That drops its queued frames, because the
  /// memory that they refer to may be freed too. Both are allowed while frames are delivered.
  std::unique_ptr<Port> create_port(std::string name);

  /// Delivers queued packets in order, at most `budget`; a train that a receiver accepts whole
  /// counts as one. Frames that receivers transmit meanwhile are queued behind. True if frames
  /// remain. No effect if called by a receiver.
  bool deliver(std::size_t budget);
  bool has_work() const { return !queue_.empty(); }

  /// Null: no tap. @pre `tap` outlives the switch or is replaced before
  void set_tap(Tap* tap);

  /// Makes this an InfiniBand switch, which forwards as `forwarder` says. Null: Ethernet, the
  /// default.
  /// @pre no port exists; `forwarder` outlives them
  void set_forwarder(Forwarder* forwarder);
  /// For a forwarder: the receiver of `port` pays for work that a frame of this port has caused.
  void charge(std::uint32_t port, std::int64_t units);
  /// Drops all cached flows. Call it when lasting results of the forwarder have changed.
  void invalidate_flows() { macs_.touch(); }
  wire::Link link() const {
    return forwarder_ == nullptr ? wire::Link::kEthernet : wire::Link::kInfiniband;
  }

  const Counters& counters() const { return counters_; }

 private:
  class SwitchPort;

  void remove_port(std::uint32_t port);
  void report_link(std::uint32_t port, bool up) {
    if (forwarder_ != nullptr) forwarder_->handle_link(port, up);
  }
  std::int64_t settle(SwitchPort& port);
  void split_front(unsigned count);
  bool forward_fast(const FrameQueue::Entry& entry);
  void forward(FrameQueue::Entry& entry);
  void forward_by_forwarder(FrameQueue::Entry& entry);
  void loop_back(const FrameQueue::Entry& entry);
  void flood(FrameQueue::Entry& entry);
  void show(const FrameQueue::Entry& entry);
  template <class Hand>
  void hand_over(std::uint32_t port, const FrameQueue::Entry& entry, Hand&& hand);
  void deliver_to(std::uint32_t port, const FrameQueue::Entry& entry);
  void deliver_front(std::size_t& budget);
  bool deliver_front_fast(FrameQueue::Entry& entry);
  bool is_taken_whole(const FrameQueue::Entry& entry) const;
  void deliver_queued(std::size_t& budget);
  template <class Call>
  static void guard(Receiver& receiver, Call&& call);

  /// Port number of queued frames whose port is destroyed.
  static constexpr std::uint32_t kPortGone = UINT32_MAX;

  std::vector<SwitchPort*> ports_;  ///< indexed by number; null for a destroyed port
  FrameQueue queue_;
  MacTable macs_;
  Tap* tap_ = nullptr;
  Forwarder* forwarder_ = nullptr;
  Counters counters_;
  const bool trains_;
  bool delivering_ = false;
};

}  // namespace softhca::fabric
