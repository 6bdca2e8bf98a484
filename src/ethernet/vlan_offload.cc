#include "ethernet/vlan_offload.h"

#include <cstring>

#include "wire/vlan.h"

namespace softhca::ethernet {
namespace {

using wire::EthernetLayout;
using wire::VlanLayout;

/// A tag consists of its EtherType and its TCI, and begins at the EtherType of the untagged frame.
constexpr std::size_t kTagOffset = 2 * wire::MacAddress::kSize;
constexpr std::size_t kTagSize = 4;
static_assert(EthernetLayout::kSize - kTagOffset + VlanLayout::kSize - kTagSize == 2);

}  // namespace

bool insert_vlan(wire::Frame& frame, wire::EtherType tpid, std::uint16_t tci) {
  const auto size = frame.head().size();
  if (size < EthernetLayout::kSize || size + kTagSize > wire::Frame::kHeadCapacity) return false;
  const auto head = frame.resize_head(size + kTagSize);
  auto* const tag = head.data() + kTagOffset;
  std::memmove(tag + kTagSize, tag, size - kTagOffset);
  util::store_be16(tag, static_cast<std::uint16_t>(tpid));
  util::store_be16(tag + 2, tci);
  return true;
}

}  // namespace softhca::ethernet
