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
  auto* at = ring_.data() + (head_ & mask_) * stride_;
  const auto* const end = at + stride_;
  // Aside, so that the device's memory is written once.
  const auto store = [&](const Sge& piece) {
    util::Struct<receive_data_segment> data;
    data.set(receive_data_segment::byte_count, piece.length);
    data.set(receive_data_segment::l_key, piece.lkey);
    data.set(receive_data_segment::local_address, piece.address);
    std::memcpy(at, data.bytes().data(), receive_data_segment::kSize);
    at += receive_data_segment::kSize;
  };
  for (const auto& piece : request.pieces) {
    if (piece.length != 0) store(piece);
  }
  if (at != end) store({.address = 0, .length = 0, .lkey = kTerminatingKey});
  ids_[head_ & mask_] = request.id;
  ++head_;
  return PostStatus::kOk;
}

}  // namespace softhca::driver::connectx
