#include "driver/connectx/receive_queue.h"

#include <cstring>

#include "spec/connectx/wqe.h"

namespace softhca::driver::connectx {

using softhca::spec::connectx::receive_data_segment;

namespace {

/// Ends a list of pieces that does not fill its entry (PRM 7.4.4.3).
constexpr std::uint32_t kTerminatingKey = 0x100;

}  // namespace

void ReceiveQueue::attach(std::span<std::byte> ring, std::size_t stride, const Limits& limits) {
  ring_ = ring;
  stride_ = stride;
  limits_ = limits;
  mask_ = static_cast<std::uint32_t>(ring.size() / stride) - 1;
  ids_.resize(mask_ + 1);
  reset();
}

PostStatus ReceiveQueue::post(const ReceiveRequest& request) {
  if (request.pieces.size() > limits_.pieces) return PostStatus::kTooManyPieces;
  if (head_ - tail_ >= ids_.size()) return PostStatus::kQueueFull;
  const auto entry = ring_.subspan((head_ & mask_) * stride_, stride_);
  auto rest = entry;
  for (const auto& piece : request.pieces) {
    if (piece.length == 0) continue;
    const util::MutableView<receive_data_segment> data(rest);
    std::memset(data.bytes().data(), 0, receive_data_segment::kSize);
    data.set(receive_data_segment::byte_count, piece.length);
    data.set(receive_data_segment::l_key, piece.lkey);
    data.set(receive_data_segment::local_address, piece.address);
    rest = rest.subspan(receive_data_segment::kSize);
  }
  if (!rest.empty()) {
    const util::MutableView<receive_data_segment> end(rest);
    std::memset(end.bytes().data(), 0, receive_data_segment::kSize);
    end.set(receive_data_segment::l_key, kTerminatingKey);
  }
  ids_[head_ & mask_] = request.id;
  ++head_;
  return PostStatus::kOk;
}

std::optional<std::uint64_t> ReceiveQueue::complete(std::uint16_t counter) {
  const auto index = tail_ + static_cast<std::uint16_t>(counter - tail_);
  if (head_ - index - 1 >= ids_.size()) return std::nullopt;
  tail_ = index + 1;
  return ids_[index & mask_];
}

}  // namespace softhca::driver::connectx
