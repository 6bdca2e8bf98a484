#include "hub/request.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace softhca::hub {
namespace {

using RequestKind = Request::Kind;

/// Bytes that follow the kind. Nothing: no request.
std::optional<std::size_t> size_of(RequestKind kind) {
  switch (kind) {
    case RequestKind::kAcceptLinks:
    case RequestKind::kShare:
      return 0;
    case RequestKind::kJoinAddress:
    case RequestKind::kLeaveAddress:
      return wire::Gid::kSize;
    case RequestKind::kListen:
    case RequestKind::kUnlisten:
      return wire::Gid::kSize + sizeof(Request::service);
  }
  return std::nullopt;
}

}  // namespace

std::span<const std::byte> Request::write(std::span<std::byte, kSizeMax> out) const {
  out[0] = static_cast<std::byte>(kind);
  const auto size = *size_of(kind);
  const auto content = out.subspan<1>();
  if (size >= wire::Gid::kSize) std::ranges::copy(address.bytes, content.begin());
  if (size > wire::Gid::kSize) {
    std::memcpy(content.subspan<wire::Gid::kSize>().data(), &service, sizeof service);
  }
  return out.first(1 + size);
}

RequestReader::Result RequestReader::take(std::byte byte, Request& request) {
  bytes_[size_++] = byte;
  const auto kind = static_cast<RequestKind>(bytes_[0]);
  const auto size = size_of(kind);
  if (!size) {
    size_ = 0;
    return Result::kNonsense;
  }
  if (size_ != 1 + *size) return Result::kMore;
  size_ = 0;
  request = {.kind = kind, .address = {}, .service = 0};
  const auto content = std::span(bytes_).subspan<1>();
  if (*size >= wire::Gid::kSize)
    request.address = wire::Gid::from(content.first<wire::Gid::kSize>());
  if (*size > wire::Gid::kSize) {
    std::memcpy(&request.service, content.subspan<wire::Gid::kSize>().data(),
                sizeof request.service);
  }
  return Result::kRequest;
}

}  // namespace softhca::hub
