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

/// Counts packets: a train (wire/train.h) is as long as all that it stands for. Grows up to a
/// bound, and allocates nothing while it is no fuller than it was before. An entry keeps its place
/// in memory while it is queued, so the front may be looked at while others are pushed. When the
/// queue is empty it begins anew, so that the same few entries are used, which are warm in cache.
class FrameQueue {
 public:
  struct Entry {
    wire::Frame frame;
    std::uint32_t port = 0;                  ///< that has sent it
    std::optional<std::uint32_t> loop_mark;  ///< to be returned to its port, with this mark
    bool rest_follows = false;               ///< the begin of a train that was split
    bool usual = false;  ///< one packet, of a port that is there, to be forwarded
  };

  explicit FrameQueue(std::size_t frames_max) : frames_max_(frames_max) {}

  /// The place of the frame that is queued next, to be built there.
  wire::Frame& draft() {
    if (draft_ == nullptr) set_draft(&make_back());
    return draft_->frame;
  }
  /// Where that place stands, if it is known: a null pointer otherwise.
  wire::Frame* const* ready_draft() const { return &draft_frame_; }
  /// Where size() stands.
  const std::size_t* packets() const { return &packets_; }
  /// Queues `frame`, which is copied unless it is the draft; of a train as much as there is room
  /// for. Returns the number of packets that are queued.
  [[nodiscard]] unsigned push(const wire::Frame& frame, std::uint32_t port,
                              std::optional<std::uint32_t> loop_mark = std::nullopt);
  /// push() of one packet that was built in its place. False, and nothing is done, if it is
  /// something else, or there is no room.
  bool push_draft(const wire::Frame& frame, std::uint32_t port) {
    if (draft_frame_ != &frame || frame.packets() != 1 || packets_ >= frames_max_) return false;
    auto& entry = *draft_;
    entry.port = port;
    entry.loop_mark.reset();
    entry.rest_follows = false;
    entry.usual = true;
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
  /// Makes two entries of the train at the front: its first `count` packets, and the rest, which
  /// owns what memory the train did.
  /// @pre 0 < count < front().frame.packets()
  void split_front(unsigned count);
  bool empty() const { return size_ == 0; }
  std::size_t entries() const { return size_; }
  /// Packets.
  std::size_t size() const { return packets_; }

  /// Counted from the front. @pre index < entries()
  Entry& at(std::size_t index) { return *ring_[slot(index)]; }

 private:
  /// After a burst, entries beyond this number are given back.
  static constexpr std::size_t kEntriesKept = 1024;

  std::size_t slot(std::size_t index) const { return (head_ + index) & ring_mask_; }
  void set_draft(Entry* entry) {
    draft_ = entry;
    draft_frame_ = entry == nullptr ? nullptr : &entry->frame;
  }
  /// The entry behind the last, which is not queued yet.
  Entry& make_back() {
    if (size_ == ring_.size()) grow();
    auto& entry = ring_[slot(size_)];
    if (entry == nullptr) entry = std::make_unique<Entry>();
    return *entry;
  }
  void grow();

  const std::size_t frames_max_;
  /// Its size is 0 or a power of two. A slot keeps its entry, if it ever had one.
  std::vector<std::unique_ptr<Entry>> ring_;
  std::size_t ring_mask_ = 0;           ///< its size - 1, of an empty one 0
  Entry* draft_ = nullptr;              ///< the place of the next entry; null: not known
  wire::Frame* draft_frame_ = nullptr;  ///< of it
  std::size_t head_ = 0;
  std::size_t size_ = 0;     ///< entries
  std::size_t packets_ = 0;  ///< what they stand for
};

}  // namespace softhca::fabric
