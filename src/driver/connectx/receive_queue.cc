#include "driver/connectx/receive_queue.h"

#include "driver/connectx/receive_list.h"

namespace softhca::driver::connectx {

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
  store_receive_list(ring_.subspan((head_ & mask_) * stride_, stride_), request.pieces);
  ids_[head_ & mask_] = request.id;
  ++head_;
  return PostStatus::kOk;
}

}  // namespace softhca::driver::connectx
