#include "driver/connectx/send_ring.h"

#include "driver/connectx/queue_sizes.h"
#include "util/field.h"

namespace softhca::driver::connectx {

using spec::wqe_ctrl_segment;

void SendRing::attach(std::span<std::byte> ring, const Limits& limits, std::uint32_t number) {
  ring_ = ring;
  limits_ = limits;
  number_ = number;
  mask_ = static_cast<std::uint32_t>(ring.size() / kBlock) - 1;
  entries_.resize(mask_ + 1);
  reset();
}

PostStatus SendRing::post_wqe(std::uint64_t id, std::span<std::byte> wqe) {
  const auto blocks = blocks_of(wqe.size());
  if (!has_room(blocks)) return PostStatus::kQueueFull;
  const util::MutableView<wqe_ctrl_segment> control(wqe);
  control.set(wqe_ctrl_segment::wqe_index, producer());
  control.set(wqe_ctrl_segment::sq_number, number_);
  control.set(wqe_ctrl_segment::ds, static_cast<std::uint32_t>(wqe.size() / kUnit));
  put(place(), wqe);
  add(id, blocks);
  return PostStatus::kOk;
}

std::optional<std::uint64_t> SendRing::complete(std::uint16_t counter) {
  // Completions arrive in order: this one is less than 2^16 blocks after the last.
  const auto first = tail_ + static_cast<std::uint16_t>(counter - tail_);
  if (head_ - first - 1 > mask_) return std::nullopt;
  const auto& entry = entries_[first & mask_];
  tail_ = first + entry.blocks;
  return entry.id;
}

}  // namespace softhca::driver::connectx
