#include "door/nldev/message.h"

#include <algorithm>
#include <cstring>

namespace softhca::door::nldev {
namespace {

std::uint32_t aligned(std::size_t size) { return NLMSG_ALIGN(static_cast<std::uint32_t>(size)); }

/// Takes `size` bytes without their padding, which may be missing at the end.
Bytes take(Bytes& bytes, std::size_t size) {
  const auto taken = bytes.first(size);
  bytes = bytes.subspan(std::min<std::size_t>(aligned(size), bytes.size()));
  return taken;
}

}  // namespace

std::optional<std::uint32_t> Request::u32(std::uint16_t type) const {
  const auto at = attributes.find(type);
  std::uint32_t value = 0;
  if (at == attributes.end() || at->second.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, at->second.data(), sizeof value);
  return value;
}

std::optional<std::string_view> Request::text(std::uint16_t type) const {
  const auto at = attributes.find(type);
  if (at == attributes.end()) return std::nullopt;
  const std::string_view all(reinterpret_cast<const char*>(at->second.data()), at->second.size());
  return all.substr(0, all.find('\0'));
}

std::optional<Request> take_request(Bytes& bytes) {
  Request request;
  auto& header = request.header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.nlmsg_len < sizeof header || header.nlmsg_len > bytes.size()) return std::nullopt;
  auto rest = take(bytes, header.nlmsg_len).subspan(sizeof header);
  while (rest.size() >= sizeof(nlattr)) {
    nlattr one;
    std::memcpy(&one, rest.data(), sizeof one);
    if (one.nla_len < sizeof one || one.nla_len > rest.size()) break;
    const auto type = static_cast<std::uint16_t>(one.nla_type & NLA_TYPE_MASK);
    request.attributes[type] = take(rest, one.nla_len).subspan(sizeof one);
  }
  return request;
}

void Replies::append(const void* bytes, std::size_t size) {
  auto& datagram = datagrams_.back();
  const auto* const from = static_cast<const std::byte*>(bytes);
  datagram.insert(datagram.end(), from, from + size);
  datagram.resize(aligned(datagram.size()));
  const auto length = static_cast<std::uint32_t>(datagram.size() - message_);
  std::memcpy(&datagram[message_], &length, sizeof length);  // nlmsg_len is first
}

void Replies::begin(std::uint16_t type, std::uint16_t flags) {
  if (std::exchange(alone_, false) || datagrams_.back().size() > kDatagramMax) {
    datagrams_.emplace_back();
  }
  message_ = datagrams_.back().size();
  nlmsghdr header{};
  header.nlmsg_type = type;
  header.nlmsg_flags = flags;
  header.nlmsg_seq = request_.nlmsg_seq;
  header.nlmsg_pid = port_;
  datagrams_.back().resize(message_ + sizeof header.nlmsg_len);
  append(&header.nlmsg_type, sizeof header - sizeof header.nlmsg_len);
}

void Replies::put(std::uint16_t type, const void* value, std::size_t size) {
  nlattr attribute{};
  attribute.nla_type = type;
  attribute.nla_len = static_cast<std::uint16_t>(sizeof attribute + size);
  append(&attribute, sizeof attribute);
  append(value, size);
}

void Replies::put_text(std::uint16_t type, std::string_view value) {
  std::vector<char> with_end(value.begin(), value.end());
  with_end.push_back('\0');
  put(type, with_end.data(), with_end.size());
}

void Replies::done() {
  begin(NLMSG_DONE, NLM_F_MULTI);
  const std::int32_t status = 0;
  append(&status, sizeof status);
}

void Replies::error(int number) {
  alone_ = true;
  begin(NLMSG_ERROR, 0);
  nlmsgerr error{};
  error.error = -number;
  error.msg = request_;
  append(&error, sizeof error);
  alone_ = true;
}

}  // namespace softhca::door::nldev
