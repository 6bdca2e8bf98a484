#include "door/card/addresses.h"

#include <algorithm>

#include "hub/join.h"
#include "util/endian.h"

namespace softhca::door {
namespace {

/// IPv4 prefix of a hub's processes. 198.19.0.0/16 is left to guests.
constexpr std::uint8_t kNet[] = {198, 18};

}  // namespace

/// The interface identifier is the MAC with ff:fe in the middle and the universal bit inverted.
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

driver::Mac mac_of(unsigned number) {
  driver::Mac mac;
  std::ranges::transform(hub::mac_of(number), mac.bytes.begin(),
                         [](std::uint8_t byte) { return std::byte{byte}; });
  return mac;
}

driver::Gid ipv4_gid_of(unsigned number) {
  // no format: the bytes of a number
  return driver::Gid::from_ipv4(kNet[0], kNet[1], static_cast<std::uint8_t>(number >> 8),
                                static_cast<std::uint8_t>(number));
}

std::vector<uverbs::GidEntry> gids_of(const driver::Mac& mac,
                                      const std::vector<driver::Gid>& others) {
  std::vector<driver::Gid> gids{link_local(mac)};
  gids.insert(gids.end(), others.begin(), others.end());
  std::vector<uverbs::GidEntry> all;
  for (const auto& gid : gids) {
    for (const bool v2 : {false, true}) all.push_back({.gid = gid, .roce_v2 = v2});
  }
  return all;
}

bool find_mac(const driver::Gid& to, driver::Mac& mac) {
  const auto* at = to.bytes.data();
  const bool of_mac = at[11] == std::byte{0xff} && at[12] == std::byte{0xfe};
  if (at[0] == std::byte{0xfe} && at[1] == std::byte{0x80} && of_mac) {
    mac.bytes = {at[8] ^ std::byte{2}, at[9], at[10], at[13], at[14], at[15]};
    return true;
  }
  if (!is_process(to)) return false;
  mac = mac_of(number_of(to));
  return true;
}

unsigned number_of(const driver::Gid& of) { return util::load_be16(of.bytes.data() + 14); }

bool is_process(const driver::Gid& to) {
  const auto* at = to.bytes.data();
  return to.is_ipv4() && at[12] == std::byte{kNet[0]} && at[13] == std::byte{kNet[1]};
}

}  // namespace softhca::door
