#include "fabric/frame_queue.h"

#include <utility>

namespace softhca::fabric {

bool FrameQueue::push(const wire::Frame& frame, std::uint32_t port,
                      std::optional<std::uint32_t> loop_mark) {
  if (size_ >= frames_max_) return false;
  if (size_ == ring_.size()) grow();
  auto entry = take_free();
  entry->frame = frame;
  entry->port = port;
  entry->loop_mark = loop_mark;
  ring_[slot(size_)] = std::move(entry);
  ++size_;
  return true;
}

void FrameQueue::pop() {
  assert(!empty());
  auto entry = std::move(ring_[head_]);
  head_ = slot(1);
  --size_;
  if (free_.size() + size_ < kEntriesKept) free_.push_back(std::move(entry));
}

std::unique_ptr<FrameQueue::Entry> FrameQueue::take_free() {
  if (free_.empty()) return std::make_unique<Entry>();
  auto entry = std::move(free_.back());
  free_.pop_back();
  return entry;
}

void FrameQueue::grow() {
  std::vector<std::unique_ptr<Entry>> bigger(ring_.empty() ? 64 : ring_.size() * 2);
  for (std::size_t i = 0; i != size_; ++i) bigger[i] = std::move(ring_[slot(i)]);
  ring_ = std::move(bigger);
  head_ = 0;
}

}  // namespace softhca::fabric
