#include "wire/address_text.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace softhca::wire {
namespace {

using Text = std::array<char, INET6_ADDRSTRLEN>;

/// As libc wants it: ended by a zero byte. Nothing: it is too long for an address, or has such a
/// byte in it.
std::optional<Text> ended(std::string_view text) {
  Text ended{};
  if (text.size() >= ended.size() || text.find('\0') != std::string_view::npos) {
    return std::nullopt;
  }
  std::ranges::copy(text, ended.begin());
  return ended;
}

}  // namespace

std::string text_of(const MacAddress& mac) {
  std::string text;
  for (const auto byte : mac.bytes) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : ":", std::to_integer<unsigned>(byte));
  }
  return text;
}

std::optional<MacAddress> parse_mac(std::string_view text) {
  constexpr std::size_t kDigits = 2, kStep = kDigits + 1;
  MacAddress mac;
  if (text.size() != kStep * MacAddress::kSize - 1) return std::nullopt;
  for (std::size_t i = 0; i != MacAddress::kSize; ++i) {
    const auto digits = text.substr(kStep * i, kDigits);
    std::uint8_t byte = 0;
    const auto [end, bad] = std::from_chars(digits.data(), digits.data() + kDigits, byte, 16);
    if (bad != std::errc() || end != digits.data() + kDigits) return std::nullopt;
    if (i + 1 != MacAddress::kSize && text[kStep * i + kDigits] != ':') return std::nullopt;
    mac.bytes[i] = std::byte{byte};
  }
  return mac;
}

std::string text_of(const Gid& gid) {
  const bool is_ipv4 = gid.is_ipv4();
  const auto* const address = gid.bytes.data() + (is_ipv4 ? Gid::kSize - sizeof(in_addr) : 0);
  Text text{};
  ::inet_ntop(is_ipv4 ? AF_INET : AF_INET6, address, text.data(), text.size());
  return text.data();
}

std::optional<Gid> parse_ip(std::string_view text) {
  if (const auto ipv4 = parse_ipv4(text)) return ipv4;
  const auto ip = ended(text);
  Gid gid;
  if (!ip || ::inet_pton(AF_INET6, ip->data(), gid.bytes.data()) != 1) return std::nullopt;
  return gid;
}

std::optional<Gid> parse_ipv4(std::string_view text) {
  const auto ip = ended(text);
  in_addr ipv4{};
  if (!ip || ::inet_pton(AF_INET, ip->data(), &ipv4) != 1) return std::nullopt;
  return Gid::from_ipv4(ntohl(ipv4.s_addr));
}

}  // namespace softhca::wire
