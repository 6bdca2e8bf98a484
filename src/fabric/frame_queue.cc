#include "fabric/frame_queue.h"

#include <utility>

#include "wire/train.h"

namespace softhca::fabric {

unsigned FrameQueue::push(const wire::Frame& frame, std::uint32_t port,
                          std::optional<std::uint32_t> loop_mark) {
  const auto room = frames_max_ - packets_;
  if (room == 0) return 0;
  if (size_ == ring_.size()) grow();
  auto entry = take_free();
  entry->frame = frame;
  auto packets = frame.packets();
  if (packets > room) {
    packets = static_cast<unsigned>(room);
    wire::keep_part(entry->frame, 0, packets);
  }
  entry->port = port;
  entry->loop_mark = loop_mark;
  entry->rest_follows = false;
  ring_[slot(size_)] = std::move(entry);
  ++size_;
  packets_ += packets;
  return packets;
}

void FrameQueue::pop() {
  assert(!empty());
  auto entry = std::move(ring_[head_]);
  head_ = slot(1);
  --size_;
  packets_ -= entry->frame.packets();
  if (free_.size() + size_ < kEntriesKept) free_.push_back(std::move(entry));
}

void FrameQueue::split_front(unsigned count) {
  if (size_ == ring_.size()) grow();
  auto begin = take_free();
  auto& rest = front();
  wire::part(rest.frame, 0, count, begin->frame);
  wire::keep_part(rest.frame, count, rest.frame.packets() - count);
  begin->port = rest.port;
  begin->loop_mark = rest.loop_mark;
  begin->rest_follows = true;
  head_ = (head_ - 1) & (ring_.size() - 1);
  ring_[head_] = std::move(begin);
  ++size_;
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
