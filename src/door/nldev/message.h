// Netlink messages (netlink(7)), and the datagrams in which the kernel sends them.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace softhca::door::nldev {

using Bytes = std::span<const std::byte>;

/// A request: its header, and the payload of its attributes by type.
struct Request {
  nlmsghdr header{};
  std::map<std::uint16_t, Bytes> attributes = {};

  bool has_flags(std::uint16_t flags) const { return (header.nlmsg_flags & flags) == flags; }
  std::optional<std::uint32_t> u32(std::uint16_t type) const;
  /// Without the terminating zero.
  std::optional<std::string_view> text(std::uint16_t type) const;
};

/// Takes the next message off `bytes`. Nothing: there is none, or it is truncated. Attributes after
/// a truncated one are ignored.
std::optional<Request> take_request(Bytes& bytes);

/// The replies to one request, for the socket with port number `port`.
class Replies {
 public:
  Replies(const nlmsghdr& request, std::uint32_t port)
      : request_(request), type_(request.nlmsg_type), port_(port) {}

  /// Begins a message of the request's type; its attributes follow.
  void begin(std::uint16_t flags = 0) { begin(type_, flags); }
  void put_u8(std::uint16_t type, std::uint8_t value) { put(type, &value, sizeof value); }
  void put_u32(std::uint16_t type, std::uint32_t value) { put(type, &value, sizeof value); }
  void put_u64(std::uint16_t type, std::uint64_t value) { put(type, &value, sizeof value); }
  void put_text(std::uint16_t type, std::string_view value);
  /// Ends a dump.
  void done();
  /// Adds NLMSG_ERROR in a datagram of its own: an errno, or 0 for an acknowledgement.
  void error(int number);

  using Datagrams = std::vector<std::vector<std::byte>>;
  Datagrams take() { return std::move(datagrams_); }

 private:
  /// A reader's buffer may be one page.
  static constexpr std::size_t kDatagramMax = 3072;

  void begin(std::uint16_t type, std::uint16_t flags);
  void put(std::uint16_t type, const void* value, std::size_t size);
  void append(const void* bytes, std::size_t size);

  const nlmsghdr request_;
  const std::uint16_t type_;
  const std::uint32_t port_;
  std::size_t message_ = 0;  ///< offset of the last message in its datagram
  bool alone_ = true;        ///< the next message begins a datagram
  Datagrams datagrams_;
};

}  // namespace softhca::door::nldev
