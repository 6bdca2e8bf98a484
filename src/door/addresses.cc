#include "door/addresses.h"

#include <algorithm>

#include "hub/join.h"

namespace softhca::door {
namespace {

/// The first of both networks of 16 bits.
constexpr std::uint8_t kNet[] = {198, 18};

/// IETF RFC 4291 appendix A: the universal bit is turned round, and ff:fe stands in the middle.
driver::Gid link_local(const driver::Mac& mac) {
  driver::Gid gid{};
  auto* at = gid.bytes.data();
  const auto* m = mac.bytes.data();
  at[0] = std::byte{0xfe};
  at[1] = std::byte{0x80};
  at[8] = m[0] ^ std::byte{2};
  at[9] = m[1];
  at[10] = m[2];
  at[11] = std::byte{0xff};
  at[12] = std::byte{0xfe};
  std::copy_n(m + 3, 3, at + 13);
  return gid;
}

}  // namespace

driver::Mac mac_of(unsigned number) {
  driver::Mac mac;
  std::ranges::transform(hub::mac_of(number), mac.bytes.begin(),
                         [](std::uint8_t byte) { return std::byte{byte}; });
  return mac;
}

std::vector<uverbs::GidEntry> gids_of(unsigned number, const driver::Mac& mac) {
  const auto ipv4 = driver::Gid::from_ipv4(
      kNet[0], static_cast<std::uint8_t>(kNet[1] + (number >> 16 & 1)),
      static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number));
  std::vector<uverbs::GidEntry> all;
  for (const auto& gid : {link_local(mac), ipv4}) {
    for (const bool v2 : {false, true}) all.push_back({.gid = gid, .roce_v2 = v2});
  }
  return all;
}

bool find_mac(const driver::Gid& to, driver::Mac& mac) {
  const auto* at = to.bytes.data();
  if (at[0] == std::byte{0xfe} && at[1] == std::byte{0x80}) {
    mac.bytes = {at[8] ^ std::byte{2}, at[9], at[10], at[13], at[14], at[15]};
    return true;
  }
  if (!to.is_ipv4()) return false;
  const auto second = std::to_integer<unsigned>(at[13]);
  if (at[12] != std::byte{kNet[0]} || (second & ~1u) != kNet[1]) return false;
  mac = mac_of((second & 1) << 16 | std::to_integer<unsigned>(at[14]) << 8 |
               std::to_integer<unsigned>(at[15]));
  return true;
}

}  // namespace softhca::door
