// Masked atomics, and the byte order of their results (mlx5 driver interface 5.6, 8.3).
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <vector>

#include "connectx/qp/data_path.h"
#include "connectx/queue/wqe_fault.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using test::HostQp;
using test::kKey;
using test::QpOptions;
using test::RdmaDataPath;
using test::RdmaTestHost;
using test::Syndrome;
using test::WqeBuilder;
using CqeCode = test::CqeOpcode;
using WqeOpcode = spec::connectx::wqe_opcode;

constexpr auto kCs = WqeOpcode::ATOMIC_MASKED_CS;
constexpr auto kFa = WqeOpcode::ATOMIC_MASKED_FA;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

class MaskedAtomic : public RdmaDataPath {
 protected:
  MaskedAtomic() {
    std::tie(a_, b_) = host_.connected();
    remote_ = host_.allocate(64, 64);
    local_ = host_.allocate(64, 64);
  }
  /// The value in memory after the atomic.
  std::uint64_t after(unsigned size, WqeOpcode opcode, std::uint64_t before,
                      const std::vector<std::uint64_t>& operands) {
    std::memcpy(host_.at(remote_), &before, 8);
    send(a_, wqe(a_, opcode).remote(remote_, kKey).masked(size, operands).data(local_, size, kKey));
    host_.run();
    const auto cqes = completions();
    EXPECT_EQ(cqes.size(), 1u);
    if (cqes.size() == 1) {
      EXPECT_EQ(cqes[0].opcode, CqeCode::REQUESTER) << unsigned{cqes[0].reason};
      EXPECT_EQ(cqes[0].byte_count, size);
    }
    // Results of 4 bytes are in wire order.
    const auto result =
        size == 8 ? load<std::uint64_t>(host_.at(local_)) : util::load_be32(host_.at(local_));
    EXPECT_EQ(result, size == 8 ? before : before & 0xFFFFFFFF);
    return load<std::uint64_t>(host_.at(remote_));
  }
  /// The fault of a refused WQE.
  WqeFault fault(const WqeBuilder& builder) {
    send(a_, builder);
    host_.run();
    const auto cqes = completions();
    EXPECT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes.at(0).opcode, CqeCode::REQUESTER_ERROR);
    return static_cast<WqeFault>(cqes.at(0).reason);
  }

  HostQp a_;
  HostQp b_;
  pcie::Iova remote_ = 0;
  pcie::Iova local_ = 0;
};

TEST_F(MaskedAtomic, OnlyTheBitsOfTheCompareMaskAreCompared) {
  EXPECT_EQ(after(8, kCs, 0x1234, {0xAAAA, 0x34, ~0ull, 0xFF}), 0xAAAAu);
  EXPECT_EQ(after(8, kCs, 0x1234, {0xAAAA, 0x34, ~0ull, 0xF00}), 0x1234u);
  EXPECT_EQ(after(8, kCs, 1ull << 63, {7, 1ull << 63, ~0ull, 1ull << 63}), 7u);
}

TEST_F(MaskedAtomic, OnlyTheBitsOfTheSwapMaskAreSwapped) {
  EXPECT_EQ(after(8, kCs, 0x1122334455667788, {~0ull, 0, 0xFF00000000000000, 0}),
            0xFF22334455667788u);
  EXPECT_EQ(after(8, kCs, 0xF0F0, {0x0F0F, 0, 0x0F0F, 0}), 0xFFFFu) << "an OR";
}

TEST_F(MaskedAtomic, NothingIsCarriedBeyondTheHighestBitOfAField) {
  EXPECT_EQ(after(8, kFa, 0x00FF, {0x0001, 0}), 0x0100u) << "one field";
  EXPECT_EQ(after(8, kFa, 0x00FF, {0x0001, 0x80}), 0x0000u) << "of 8 bits";
  EXPECT_EQ(after(8, kFa, 0xFFFFFFFF'FFFFFFFF, {0x00000001'00000001, 0x80000000}), 0u);
  EXPECT_EQ(after(8, kFa, 0xFF00FF, {0x0F0F0F, ~0ull}), 0xF00FF0u) << "of one bit each: XOR";
  EXPECT_EQ(after(8, kFa, 0x7F, {0x7F, 0x80}), 0xFEu) << "the highest bit belongs to its field";
}

TEST_F(MaskedAtomic, Of4BytesTheOtherHalfStaysAsItIs) {
  constexpr std::uint64_t kOther = 0xDDDDDDDD'00000000;
  EXPECT_EQ(after(4, kFa, kOther | 0xFFFFFFFF, {1, 0}), kOther);
  EXPECT_EQ(after(4, kFa, kOther | 5, {2, 0}), kOther | 7);
  EXPECT_EQ(after(4, kCs, kOther | 5, {9, 5, 0xFFFFFFFF, 0xFFFFFFFF}), kOther | 9);
  EXPECT_EQ(after(4, kCs, kOther | 6, {9, 5, 0xFFFFFFFF, 0xFFFFFFFF}), kOther | 6);
}

TEST_F(MaskedAtomic, Of4BytesMayStandAtAnyMultipleOf4) {
  std::memset(host_.at(remote_), 0, 16);
  send(a_, wqe(a_, kFa).remote(remote_ + 4, kKey).masked(4, {3, 0}).data(local_, 4, kKey));
  host_.run();
  EXPECT_EQ(completions().at(0).opcode, CqeCode::REQUESTER);
  EXPECT_EQ(load<std::uint32_t>(host_.at(remote_ + 4)), 3u);
  send(a_, wqe(a_, kFa).remote(remote_ + 4, kKey).masked(8, {3, 0}).data(local_, 8, kKey));
  host_.run();
  EXPECT_EQ(completions().at(0).syndrome, Syndrome::REMOTE_INVALID_REQUEST_ERROR);
}

TEST_F(MaskedAtomic, OpmodGivesTheSizeOfTheOperands) {
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  const auto with = [&](std::uint32_t opmod) {
    return fault(wqe(a_, kFa)
                     .remote(remote_, kKey)
                     .masked(8, {1, 0})
                     .control(Ctrl::opmod, opmod)
                     .data(local_, 8, kKey));
  };
  EXPECT_EQ(with(0), WqeFault::kAtomicOperandSize);
}

TEST_F(MaskedAtomic, TheBufferHasTheSizeOfTheOperands) {
  send(a_, wqe(a_, kFa).remote(remote_, kKey).masked(4, {1, 0}).data(local_, 8, kKey));
  host_.run();
  EXPECT_EQ(completions().at(0).syndrome, Syndrome::LOCAL_LENGTH_ERROR);
}

TEST_F(MaskedAtomic, ARightIsNeededAsForAnyAtomic) {
  using Bit = spec::connectx::qp_opt_param_bit;
  ASSERT_TRUE(host_.modify(b_, test::Opcode::RTS2RTS_QP, 1u << static_cast<unsigned>(Bit::RAE),
                           [](auto context) { context.set(test::qpc::rae, 0); }));
  send(a_, wqe(a_, kFa).remote(remote_, kKey).masked(8, {1, 0}).data(local_, 8, kKey));
  host_.run();
  EXPECT_EQ(completions().at(0).syndrome, Syndrome::REMOTE_INVALID_REQUEST_ERROR);
}

// Drivers give both; rae alone is not enough.
TEST_F(MaskedAtomic, AQpWithoutAnAtomicModeTakesNone) {
  using Bit = spec::connectx::qp_opt_param_bit;
  ASSERT_TRUE(host_.modify(b_, test::Opcode::RTS2RTS_QP, 1u << static_cast<unsigned>(Bit::RAE),
                           [](auto context) { context.set(test::qpc::rae, 1); }));
  send(a_, wqe(a_, WqeOpcode::ATOMIC_FA).remote(remote_, kKey).atomic(1, 0).data(local_, 8, kKey));
  host_.run();
  EXPECT_EQ(completions().at(0).syndrome, Syndrome::REMOTE_INVALID_REQUEST_ERROR);
}

// InfiniBand has no masked atomics; the other modes have a size.
TEST_F(MaskedAtomic, TheAtomicModeGivesTheirSizes) {
  using Bit = spec::connectx::qp_opt_param_bit;
  using enum spec::connectx::qp_atomic_mode;
  struct Case {
    spec::connectx::qp_atomic_mode mode;
    unsigned size;
    bool taken;
  };
  const Case cases[] = {{IB_SPEC, 4, false},  {IB_SPEC, 8, false}, {ONLY_8B, 4, false},
                        {ONLY_8B, 8, true},   {UP_TO_8B, 4, true}, {UP_TO_8B, 8, true},
                        {UP_TO_16B, 4, true}, {UP_TO_16B, 8, true}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << static_cast<unsigned>(c.mode) << ", " << c.size);
    std::tie(a_, b_) = host_.connected();
    ASSERT_TRUE(host_.modify(
        b_, test::Opcode::RTS2RTS_QP, 1u << static_cast<unsigned>(Bit::RAE), [&](auto context) {
          context.set(test::qpc::rae, 1);
          context.set(test::qpc::atomic_mode, static_cast<std::uint32_t>(c.mode));
        }));
    std::memset(host_.at(remote_), 0, 8);
    send(a_,
         wqe(a_, WqeOpcode::ATOMIC_FA).remote(remote_, kKey).atomic(1, 0).data(local_, 8, kKey));
    host_.run();
    EXPECT_EQ(completions().at(0).opcode, CqeCode::REQUESTER) << "in all modes";
    send(a_, wqe(a_, kFa).remote(remote_, kKey).masked(c.size, {2, 0}).data(local_, c.size, kKey));
    host_.run();
    const auto cqe = completions().at(0);
    EXPECT_EQ(cqe.opcode, c.taken ? CqeCode::REQUESTER : CqeCode::REQUESTER_ERROR);
    if (!c.taken) {
      EXPECT_EQ(cqe.syndrome, Syndrome::REMOTE_INVALID_REQUEST_ERROR);
    }
    EXPECT_EQ(load<std::uint32_t>(host_.at(remote_)), c.taken ? 3u : 1u);
  }
}

class AtomicsInTheOrderOfTheWire : public ::testing::Test {
 protected:
  RdmaTestHost host_{{.big_endian_atomics = true}};
};

TEST_F(AtomicsInTheOrderOfTheWire, AreThoseOfADriverThatHasNotAskedForTheHosts) {
  auto [a, b] = host_.connected();
  const auto remote = host_.allocate(64, 64);
  const auto local = host_.allocate(64, 64);
  const std::uint64_t before = 0x0102030405060708;
  std::memcpy(host_.at(remote), &before, 8);
  const auto fetch_add = WqeBuilder(WqeOpcode::ATOMIC_FA, a.send_producer, a.qpn)
                             .remote(remote, kKey)
                             .atomic(1, 0)
                             .data(local, 8, kKey);
  host_.post_send(a, fetch_add.bytes());
  host_.ring_send(a);
  host_.run();
  ASSERT_EQ(host_.poll_all(host_.cq).size(), 1u);
  EXPECT_EQ(util::load_be64(host_.at(local)), before);
  EXPECT_EQ(load<std::uint64_t>(host_.at(remote)), before + 1) << "memory is the host's";
}

}  // namespace
}  // namespace softhca::connectx
