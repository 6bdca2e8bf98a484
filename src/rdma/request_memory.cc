#include "rdma/request_memory.h"

#include <array>
#include <cstring>
#include <span>

#include "rdma/scatter_gather.h"
#include "util/endian.h"

namespace softhca::rdma {

void RequestMemory::forget() { payload_key_ = target_key_ = {}; }

Reason RequestMemory::check_payload(const SendEntry& e) const {
  return e.request.is_inline ? Reason::kNone : check_all(keys_, user(), e.request.sges, kLocalRead);
}

Reason RequestMemory::check_target(const SendEntry& e) const {
  return check_all(keys_, user(), e.request.sges, kLocalWrite);
}

Reason RequestMemory::add_payload(const SendEntry& e, std::uint64_t offset, std::size_t length,
                                  wire::Frame& frame) const {
  if (length == 0) return Reason::kNone;
  if (!e.request.is_inline) {
    return gather(keys_, user(), e.request.sges, e.request.inline_data, offset, length, frame);
  }
  // Copy: the entry may serve another request before the frame is delivered. Short data fit behind
  // the headers.
  const std::span<const std::byte> data = e.request.inline_data;
  if (offset > data.size() || length > data.size() - offset) return Reason::kBeyondMessage;
  const bool short_enough = frame.head_size() + length <= wire::Frame::kHeadCapacity;
  const auto to = short_enough ? frame.extend_head(length) : frame.own_payload(length);
  std::memcpy(to.data(), data.data() + offset, length);
  return Reason::kNone;
}

Reason RequestMemory::check_and_add(const SendEntry& e, wire::Frame& frame) const {
  const auto fault = check_payload(e);
  return fault != Reason::kNone ? fault : add_payload(e, 0, e.length, frame);
}

bool RequestMemory::refer(const SendEntry& e, std::uint64_t offset, std::size_t length,
                          wire::Frame& frame) const {
  return rdma::refer(keys_, user(), e.request.sges, offset, length, frame);
}

Reason RequestMemory::put(const SendEntry& e, std::uint64_t offset, const wire::Frame& frame,
                          std::size_t from, std::size_t length) const {
  return scatter(keys_, user(), e.request.sges, offset, frame, from, length);
}

/// 4-byte results are always in wire order; big_endian_atomics applies to 8-byte results only.
Reason RequestMemory::put_result(const SendEntry& e, std::uint64_t original) const {
  std::array<std::byte, 8> result;
  const auto bytes = std::span(result).first(e.length);
  if (bytes.size() == sizeof(std::uint32_t)) {
    util::store_be32(bytes.data(), static_cast<std::uint32_t>(original));
  } else if (qp_.options().big_endian_atomics) {
    util::store_be64(bytes.data(), original);
  } else {
    std::memcpy(bytes.data(), &original, sizeof original);
  }
  return scatter(keys_, user(), e.request.sges, 0, bytes);
}

}  // namespace softhca::rdma
