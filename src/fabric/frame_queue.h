// Frames waiting for delivery, first in first out.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "wire/frame.h"

namespace softhca::fabric {

/// Counts packets: a train (wire/train.h) counts as all its packets. Grows up to a bound, and
/// allocates nothing below its previous maximum. A queued entry does not move, so the front may be
/// read while other entries are pushed. An empty queue starts over at its first entry, so that the
/// same few entries, warm in cache, are reused.
class FrameQueue {
 public:
  struct Entry {
    wire::Frame frame;
    std::uint32_t port = 0;                  ///< port that sent it
    std::optional<std::uint32_t> loop_mark;  ///< loop back to its port, with this mark
    bool rest_follows = false;               ///< the first part of a train that was split
    bool simple = false;                     ///< one packet, from an existing port, to be forwarded
  };

  explicit FrameQueue(std::size_t frames_max) : frames_max_(frames_max) {}

  /// The frame of the next entry, to be built in place.
  wire::Frame& draft() {
    if (draft_ == nullptr) set_draft(&make_back());
    return draft_->frame;
  }
  /// Pointer to the address of that frame; the address is null if it is not known yet.
  wire::Frame* const* ready_draft() const { return &draft_frame_; }
  /// Address of the value of size().
  const std::size_t* packets() const { return &packets_; }
  /// Queues `frame`, which is copied unless it is the draft; from a train, as many packets as there
  /// is room for. Returns the number of packets queued.
  [[nodiscard]] unsigned push(const wire::Frame& frame, std::uint32_t port,
                              std::optional<std::uint32_t> loop_mark = std::nullopt);
  /// push() of one packet that was built in place. If it is anything else, or there is no room,
  /// returns false and does nothing.
  bool push_draft(const wire::Frame& frame, std::uint32_t port) {
    if (draft_frame_ != &frame || frame.packets() != 1 || packets_ >= frames_max_) return false;
    auto& entry = *draft_;
    entry.port = port;
    entry.loop_mark.reset();
    entry.rest_follows = false;
    entry.simple = true;
    ++size_;
    ++packets_;
    set_draft(size_ > ring_mask_ ? nullptr : ring_[slot(size_)].get());
    return true;
  }
  /// @pre !empty()
  Entry& front() { return *ring_[head_]; }
  /// @pre !empty()
  void pop() {
    assert(!empty());
    auto& entry = *ring_[head_];
    packets_ -= entry.frame.packets();
    if (head_ >= kEntriesKept) ring_[head_] = nullptr;
    head_ = slot(1);
    if (--size_ == 0) {
      head_ = 0;
      set_draft(ring_[0].get());
    }
  }
  /// Splits the train at the front into two entries: its first `count` packets, and the rest, which
  /// keeps the memory that the train owned.
  /// @pre 0 < count < front().frame.packets()
  void split_front(unsigned count);
  bool empty() const { return size_ == 0; }
  std::size_t entries() const { return size_; }
  /// Packets queued.
  std::size_t size() const { return packets_; }

  /// Entry at `index`, counted from the front. @pre index < entries()
  Entry& at(std::size_t index) { return *ring_[slot(index)]; }

 private:
  /// After a burst, entries beyond this number are freed.
  static constexpr std::size_t kEntriesKept = 1024;

  std::size_t slot(std::size_t index) const { return (head_ + index) & ring_mask_; }
  void set_draft(Entry* entry) {
    draft_ = entry;
    draft_frame_ = entry == nullptr ? nullptr : &entry->frame;
  }
  /// The entry behind the last, not queued yet.
  Entry& make_back() {
    if (size_ == ring_.size()) grow();
    auto& entry = ring_[slot(size_)];
    if (entry == nullptr) entry = std::make_unique<Entry>();
    return *entry;
  }
  void grow();

  const std::size_t frames_max_;
  /// Its size is 0 or a power of two. A slot keeps its entry once it has one.
  std::vector<std::unique_ptr<Entry>> ring_;
  std::size_t ring_mask_ = 0;           ///< its size - 1; 0 if it is empty
  Entry* draft_ = nullptr;              ///< the next entry; null: not known
  wire::Frame* draft_frame_ = nullptr;  ///< frame of draft_
  std::size_t head_ = 0;
  std::size_t size_ = 0;     ///< entries
  std::size_t packets_ = 0;  ///< packets of the entries
};

}  // namespace softhca::fabric
