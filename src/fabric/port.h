// Interface by which frames leave and reach a device.
//
// A Port is one end of a link. Everything that carries or changes frames (switch, trace, loss,
// delay) has this interface and can be stacked.
#pragma once

#include <cstdint>

#include "wire/frame.h"

namespace softhca::fabric {

/// Receives frames that arrive at a port.
class Receiver {
 public:
  virtual ~Receiver() = default;
  /// The frame and the memory that it refers to are valid only during the call. The receiver may
  /// transmit from here: that queues frames, and does not deliver them.
  virtual void handle_frame(const wire::Frame& frame) = 0;
  /// Receives a frame that its own port sent with loop_back(), with its mark.
  virtual void handle_loopback(const wire::Frame& frame, std::uint32_t mark) = 0;
  /// Called if one of these has thrown std::bad_alloc. False: the exception is rethrown.
  virtual bool handle_no_memory() { return false; }
  /// True if arriving frames may be trains (wire/train.h). Otherwise the fabric splits them.
  virtual bool takes_trains() const { return false; }
  /// The fabric has done this work (util::WorkBudget) for a frame that the receiver's port sent,
  /// besides delivering it.
  virtual void handle_cost(std::int64_t /*units*/) {}
};

class Port {
 public:
  virtual ~Port() = default;
  /// Queues `frame`, and returns its number. The memory of its segments must stay valid and
  /// unchanged until released() reaches that number, which happens before the owner runs again. If
  /// the host takes memory away earlier, the fabric copies what it still refers to. Numbers ascend;
  /// a frame that is dropped immediately gets the number of its predecessor.
  virtual std::uint64_t transmit(const wire::Frame& frame) = 0;
  /// A frame to be built and passed to transmit(), which need not copy it then. It belongs to the
  /// port, until the next call of one of the two.
  wire::Frame& draft() {
    auto* const ready = *shortcuts_.draft;
    return ready != nullptr ? *ready : make_draft();
  }
  /// Queues `frame` for this port's own receiver only, with a number in the sequence of transmit().
  /// A frame that a NIC sends to itself does not reach the wire, and an Ethernet switch would not
  /// return it.
  virtual std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) = 0;
  /// Frames up to this number no longer refer to memory: they are delivered, dropped or copied.
  virtual std::uint64_t released() const = 0;
  /// Copies the memory that queued frames of this port refer to, because it is about to become
  /// invalid. The frames are still delivered; if memory runs out, a frame is dropped. Returns the
  /// cost (see util::WorkBudget).
  virtual std::int64_t settle() { return 0; }
  /// For a receiver that answers once instead of after each frame. True inside handle_frame() if
  /// the port knows that no other packet, to any receiver, is queued.
  bool delivers_last() const { return *shortcuts_.packets == 1; }
  /// Null: arriving frames are dropped.
  virtual void set_receiver(Receiver* receiver) = 0;
  /// True if transmit() and loop_back() accept trains (wire/train.h). The queue counts their
  /// packets, and drops those that it has no room for.
  virtual bool takes_trains() const { return false; }
  /// True while the link has a partner.
  virtual bool link_up() const = 0;

  /// The data of draft() and delivers_last(), which are called too often to be virtual.
  struct Shortcuts {
    wire::Frame* const* draft = &kNoDraft;  ///< points to null if make_draft() must be called
    const std::size_t* packets =
        &kPacketsUnknown;  ///< queued packets, including the one being delivered
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
