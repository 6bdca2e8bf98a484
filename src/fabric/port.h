// How frames leave and reach a device.
//
// A Port is one end of a link. Everything that carries or changes frames (switch, capture, loss,
// delay, UDP) has this interface and can be stacked.
#pragma once

#include <cstdint>

#include "wire/frame.h"

namespace softhca::fabric {

/// Takes frames that arrive at a port.
class Receiver {
 public:
  virtual ~Receiver() = default;
  /// The frame and the memory it refers to are valid during the call only. The receiver may
  /// transmit from here: that queues frames, it does not deliver them.
  virtual void handle_frame(const wire::Frame& frame) = 0;
  /// A frame that this receiver's port has sent with loop_back(), and the mark that it gave it.
  virtual void handle_loopback(const wire::Frame& frame, std::uint32_t mark) = 0;
  /// One of these has thrown std::bad_alloc. False: it is thrown on.
  virtual bool handle_no_memory() { return false; }
  /// Whether what arrives may be a train (wire/train.h). Otherwise the fabric cuts it.
  virtual bool takes_trains() const { return false; }
};

class Port {
 public:
  virtual ~Port() = default;
  /// Queues `frame`, and returns its number. The memory that its segments refer to must stay valid
  /// and unchanged until released() has come to that number, which happens before the owner runs
  /// again; where the host takes memory away earlier, the fabric copies what it still refers to.
  /// Numbers ascend; a frame that is dropped at once has the number of the one before it.
  virtual std::uint64_t transmit(const wire::Frame& frame) = 0;
  /// A frame to be built and given to transmit(), which then need not copy it. It is the port's own
  /// until the next call of one of these.
  wire::Frame& draft() {
    auto* const ready = *shortcuts_.draft;
    return ready != nullptr ? *ready : make_draft();
  }
  /// Queues `frame` for this port's own receiver and for nobody else, numbered among those of
  /// transmit(): what a NIC sends to itself stays off the wire, and an Ethernet switch would not
  /// return it.
  virtual std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) = 0;
  /// The frames up to this number refer to no memory any more: they are delivered, dropped or
  /// copied.
  virtual std::uint64_t released() const = 0;
  /// Copies what the queued frames of this port refer to, since memory of their sender is about to
  /// go. They are delivered as if nothing had happened; one that there is no memory for is dropped.
  /// Returns what that cost (see util::WorkBudget).
  virtual std::int64_t settle() { return 0; }
  /// For a receiver that would rather answer once than after each frame. True inside handle_frame()
  /// if no other packet waits to be delivered, to anybody, and the port knows.
  bool delivers_last() const { return *shortcuts_.packets == 1; }
  /// Null: arriving frames are dropped.
  virtual void set_receiver(Receiver* receiver) = 0;
  /// Whether transmit() and loop_back() may be given trains (wire/train.h). The queue counts their
  /// packets, and what it has no room for is dropped.
  virtual bool takes_trains() const { return false; }
  /// True while the link has a partner.
  virtual bool link_up() const = 0;

  /// Where draft() and delivers_last() look, which are too often called to be virtual.
  struct Shortcuts {
    wire::Frame* const* draft = &kNoDraft;          ///< null there: make_draft() is to be asked
    const std::size_t* packets = &kPacketsUnknown;  ///< queued, with the one being delivered
  };
  /// For a port in front of this one.
  const Shortcuts& shortcuts() const { return shortcuts_; }

 protected:
  Port() : Port(Shortcuts{}) {}
  explicit Port(const Shortcuts& shortcuts) : shortcuts_(shortcuts) {}
  virtual wire::Frame& make_draft() { return draft_; }

 private:
  static constexpr wire::Frame* kNoDraft = nullptr;
  static constexpr std::size_t kPacketsUnknown = 0;

  const Shortcuts shortcuts_;
  wire::Frame draft_;
};

}  // namespace softhca::fabric
