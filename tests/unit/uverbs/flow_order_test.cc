// Which of several flows gets a frame (kernel interface 4.12). The order is that of mlx5_ib's
// tables: priorities, then rules for multicast alone, then leftovers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "fabric/switch.h"
#include "util/endian.h"
#include "uverbs/abi.h"
#include "uverbs/raw_packet_program.h"
#include "wire/frame.h"

namespace softhca::uverbs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

using Mac = std::array<std::uint8_t, 6>;
constexpr Mac kGroup{0x01, 0x00, 0x5e, 0x00, 0x00, 0x07}, kStation{0x02, 0, 0, 0, 0, 0x07};
/// Two EtherTypes for experiments (IEEE 802).
constexpr std::uint16_t kOne = 0x88b5, kTwo = 0x88b6;

class UverbsFlowOrder : public UverbsRawPacket {
 protected:
  void SetUp() override {
    UverbsRawPacket::SetUp();
    neighbor_ = program_.network().create_port("neighbor");
    ib_uverbs_reg_mr_resp region{};
    ASSERT_EQ(program_.reg_mr(pd_, program_.memory(), Program::kMemory, kLocalWrite, region), 0);
    lkey_ = region.lkey;
  }

  /// A raw packet QP with a CQ of its own, that receives. Its 16 receives are posted.
  Qp receiver() {
    const auto number = receivers_.size();
    const auto begin = (40 + number) * kPage;
    EXPECT_EQ(
        program_.create_cq(
            page_, {.begin = begin, .record = Program::kMemory - kPage / 2 + 64 * number}, cq_),
        0);
    record_offset_ += 64;
    const auto qp = create_qp(0, kReceives);
    EXPECT_EQ(qp.wrong, 0);
    EXPECT_EQ(modify(qp, kStateBit | kPortBit, kInitState), 0);
    // All QPs have their queue at the same place, and their receives write to one buffer.
    for (std::uint64_t i = 0; i != kReceives; ++i) {
      auto* const wqe = at(8 * kPage + 16 * i);
      util::store_be32(wqe, 2048);
      util::store_be32(wqe + 4, lkey_);
      util::store_be64(wqe + 8, program_.memory() + 32 * kPage);
    }
    util::store_be32(at(Program::kMemory - kPage + record_offset_), kReceives);
    receivers_.push_back({.handle = qp.handle, .next_cqe = begin});
    return qp;
  }
  /// Sends a frame to `mac`, and returns the handles of the QPs that got it.
  std::vector<std::uint32_t> deliver(const Mac& mac, std::uint16_t type = kOne) {
    std::array<std::byte, 60> bytes{};
    std::memcpy(bytes.data(), mac.data(), mac.size());
    bytes[6] = std::byte{2};
    bytes[11] = std::byte{0x77};
    util::store_be16(bytes.data() + 12, type);
    neighbor_->transmit(wire::Frame::from_bytes(bytes));
    for (int i = 0; i != 4; ++i) program_.turn();
    std::vector<std::uint32_t> got;
    for (auto& one : receivers_) {
      // The memory was zero: opcode and owner of a CQE are in its last byte.
      if (*at(one.next_cqe + 63) == std::byte{0}) continue;
      got.push_back(one.handle);
      one.next_cqe += 64;
    }
    return got;
  }
  std::byte* at(std::uint64_t offset) {
    return reinterpret_cast<std::byte*>(program_.memory() + offset);
  }
  Errno lead(Flow flow) {
    std::uint32_t handle = 0;
    return create(flow, handle);
  }
  /// A flow of one MAC.
  Flow of_mac(const Qp& qp, const Mac& mac, std::uint16_t priority) {
    auto flow = flow_to(qp, 0);
    std::ranges::copy(mac, flow.value.dst_mac);
    flow.priority = priority;
    return flow;
  }
  /// A flow of one EtherType.
  Flow of_type(const Qp& qp, std::uint16_t type, std::uint16_t priority) {
    auto flow = flow_to(qp, 0);
    flow.mask = {};
    flow.mask.ether_type = 0xffff;
    flow.value.ether_type = __builtin_bswap16(type);
    flow.priority = priority;
    return flow;
  }
  /// A flow of the leftovers: 1 all, 2 multicast.
  Flow leftover(const Qp& qp, std::uint32_t type) {
    Flow flow = {.qp_handle = qp.handle, .type = type, .size = 0, .count = 0};
    return flow;
  }

  static constexpr std::uint32_t kReceives = 16;
  struct Receiver {
    std::uint32_t handle = 0;
    std::uint64_t next_cqe = 0;  ///< offset in memory()
  };
  std::unique_ptr<fabric::Port> neighbor_;
  std::uint32_t lkey_ = 0;
  std::vector<Receiver> receivers_;
};

// flow_is_multicast_only, MLX5_IB_FLOW_MCAST_PRIO.
TEST_F(UverbsFlowOrder, RulesForMulticastAloneFollowAllPriorities) {
  const auto group = receiver(), type = receiver(), station = receiver();
  ASSERT_EQ(lead(of_mac(group, kGroup, 0)), 0);
  ASSERT_EQ(lead(of_mac(station, kStation, 0)), 0);
  ASSERT_EQ(lead(of_type(type, kTwo, 15)), 0);
  EXPECT_THAT(deliver(kGroup, kOne), ElementsAre(group.handle));
  EXPECT_THAT(deliver(kGroup, kTwo), ElementsAre(type.handle)) << "of the last priority";
  EXPECT_THAT(deliver(kStation, kTwo), ElementsAre(station.handle));
}

TEST_F(UverbsFlowOrder, ARuleForMulticastThatDoesNotTrapKeepsItsPriority) {
  constexpr std::uint32_t kDoNotTrap = 2;  // in ib_flow_flags
  const auto group = receiver(), type = receiver();
  auto flow = of_mac(group, kGroup, 3);
  flow.flags = kDoNotTrap;
  ASSERT_EQ(lead(flow), 0);
  ASSERT_EQ(lead(of_type(type, kTwo, 3)), 0);
  EXPECT_THAT(deliver(kGroup, kTwo), UnorderedElementsAre(group.handle, type.handle));
}

// raw_fs_is_multicast: the same for rules in the format of the device.
TEST_F(UverbsFlowOrder, MatchersForMulticastAloneFollowAllPriorities) {
  const auto group = receiver(), type = receiver();
  constexpr std::size_t kDmac = 8;
  std::array<std::byte, 64> mask{}, value{};
  for (std::size_t i = 0; i != kGroup.size(); ++i) {
    mask[kDmac + i] = std::byte{0xff};
    value[kDmac + i] = std::byte{kGroup[i]};
  }
  Call make(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE);
  ASSERT_EQ(make.number(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, 0)
                .in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, mask)
                .in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, std::uint16_t{0})
                .in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, std::uint8_t{1})
                .on(program_.context()),
            0);
  ASSERT_EQ(Call(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW)
                .number(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, 0)
                .in(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value)
                .number(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, make.made(0))
                .number(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, group.handle)
                .on(program_.context()),
            0);
  ASSERT_EQ(lead(of_type(type, kTwo, 15)), 0);
  EXPECT_THAT(deliver(kGroup, kOne), ElementsAre(group.handle));
  EXPECT_THAT(deliver(kGroup, kTwo), ElementsAre(type.handle));
}

// create_leftovers_rule: both types have the same rule for multicast.
TEST_F(UverbsFlowOrder, MulticastThatIsLeftGoesToBothKindsOfLeftovers) {
  const auto all = receiver(), groups = receiver();
  ASSERT_EQ(lead(leftover(all, 1)), 0);
  ASSERT_EQ(lead(leftover(groups, 2)), 0);
  EXPECT_THAT(deliver(kGroup), UnorderedElementsAre(all.handle, groups.handle));
  EXPECT_THAT(deliver(kStation), ElementsAre(all.handle));
}

// MLX5_FLOW_CONTEXT_ACTION_FWD_NEXT_NS: other priorities do not get the frame.
TEST_F(UverbsFlowOrder, ADefaultMissLeadsToTheLeftovers) {
  const auto other = receiver();
  const auto first = matcher(MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX, 0);
  const auto second = matcher(MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX, 1);
  const auto to_other = [&](Call& call) {
    call.number(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, other.handle);
  };
  ASSERT_EQ(create_matched(second, 7, to_other), 0);
  EXPECT_THAT(deliver(kStation), ElementsAre(other.handle));
  ASSERT_EQ(create_matched(first, 7, flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS)), 0);
  EXPECT_THAT(deliver(kStation), IsEmpty());
  const auto left = receiver();
  ASSERT_EQ(lead(leftover(left, 1)), 0);
  EXPECT_THAT(deliver(kStation), ElementsAre(left.handle));
}

}  // namespace
}  // namespace softhca::uverbs
