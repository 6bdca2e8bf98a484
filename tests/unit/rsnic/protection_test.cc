// 4.2: the steps of the protection flow, which all devices share.

#include <gtest/gtest.h>

#include "pcie/dma_space.h"
#include "rdma/memory_key.h"

namespace softhca::rsnic {
namespace {

using namespace rdma;

// "LKEY/RKEY [...] locate the memory region entry"; "the right QPN"; "within the boundary"; "access
// rights". Each access also has every later fault, so the reported one shows the order.
TEST(Protection, ChecksKeyQpRangeAndRightsInTheOrderOfTheDocument) {
  pcie::DmaSpace dma;
  KeyTable keys(dma, KeyShape(8, 24));
  MemoryKey::Attributes attributes;
  attributes.key = MKey(0x502);
  attributes.pd = Pd(1);
  attributes.only_qpn = Qpn(7);
  attributes.start = 0x1000;
  attributes.length = 0x100;
  attributes.access = kLocalRead;
  keys.insert(attributes);
  const auto reason = [&](MKey key, const KeyUser& user, std::uint64_t address,
                          std::uint8_t access) {
    return keys.check(key, user, address, 0x100, access).reason;
  };
  const KeyUser stranger{.pd = Pd(2), .qpn = Qpn(8)}, other{.pd = Pd(1), .qpn = Qpn(8)},
      owner{.pd = Pd(1), .qpn = Qpn(7)};
  EXPECT_EQ(reason(MKey(0x503), stranger, 0x1001, kRemoteWrite), Reason::kKeyUnknown);
  EXPECT_EQ(reason(MKey(0x502), stranger, 0x1001, kRemoteWrite), Reason::kKeyOtherPd);
  EXPECT_EQ(reason(MKey(0x502), other, 0x1001, kRemoteWrite), Reason::kKeyOtherQp);
  EXPECT_EQ(reason(MKey(0x502), owner, 0x1001, kRemoteWrite), Reason::kKeyRange);
  EXPECT_EQ(reason(MKey(0x502), owner, 0x1000, kRemoteWrite), Reason::kKeyRights);
  EXPECT_EQ(reason(MKey(0x502), owner, 0x1000, kLocalRead), Reason::kNone);
}

}  // namespace
}  // namespace softhca::rsnic
