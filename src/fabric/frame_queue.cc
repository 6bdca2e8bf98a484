#include "fabric/frame_queue.h"

#include <utility>

#include "wire/train.h"

namespace softhca::fabric {

unsigned FrameQueue::push(const wire::Frame& frame, std::uint32_t port,
                          std::optional<std::uint32_t> loop_mark) {
  const auto room = frames_max_ - packets_;
  if (room == 0) return 0;
  auto& entry = make_back();
  set_draft(nullptr);
  if (&entry.frame != &frame) entry.frame = frame;
  auto packets = frame.packets();
  if (packets > room) {
    packets = static_cast<unsigned>(room);
    wire::keep_part(entry.frame, 0, packets);
  }
  entry.port = port;
  entry.loop_mark = loop_mark;
  entry.rest_follows = entry.simple = false;
  ++size_;
  packets_ += packets;
  return packets;
}

void FrameQueue::split_front(unsigned count) {
  // The new entry is made at the back, where there is room, and then moved to the front.
  auto& begin = make_back();
  set_draft(nullptr);
  auto& rest = front();
  wire::part(rest.frame, 0, count, begin.frame);
  wire::keep_part(rest.frame, count, rest.frame.packets() - count);
  begin.port = rest.port;
  begin.loop_mark = rest.loop_mark;
  begin.rest_follows = true;
  begin.simple = rest.simple = false;
  const auto back = slot(size_);
  head_ = (head_ - 1) & ring_mask_;
  std::swap(ring_[head_], ring_[back]);
  ++size_;
}

void FrameQueue::grow() {
  std::vector<std::unique_ptr<Entry>> bigger(ring_.empty() ? 64 : ring_.size() * 2);
  for (std::size_t i = 0; i != size_; ++i) bigger[i] = std::move(ring_[slot(i)]);
  ring_ = std::move(bigger);
  ring_mask_ = ring_.size() - 1;
  head_ = 0;
}

}  // namespace softhca::fabric
