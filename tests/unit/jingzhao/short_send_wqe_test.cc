// The fast path for send WQEs decodes them as the general decoder does (JingZhao 3.4).
#include "jingzhao/short_send_wqe.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

namespace softhca::jingzhao::test {
namespace {

using spec::jingzhao::data_unit;
using spec::jingzhao::inline_unit;
using spec::jingzhao::wqe_opcode;

using Bytes = std::array<std::byte, ShortSendWqe::kSize>;

auto tie(const rdma::SendRequest& request) {
  std::vector<std::byte> payload;
  if (request.is_inline) {
    const std::span<const std::byte> bytes = request.inline_data;
    payload.assign(bytes.begin(), bytes.end());
  }
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>> pieces;
  for (const auto& sge : request.sges) {
    pieces.emplace_back(sge.address, sge.length, sge.lkey.value());
  }
  return std::tuple(request.cookie, request.opcode, request.signaled, request.solicited,
                    request.fence, request.stale, request.immediate, request.is_inline, payload,
                    pieces);
}

/// A random WQE whose lengths and opcodes are often plausible.
Bytes random_wqe(std::mt19937& random, SendWqe& what) {
  Bytes bytes;
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  constexpr wqe_opcode kOpcodes[] = {
      wqe_opcode::NOP,       wqe_opcode::RDMA_WRITE, wqe_opcode::RDMA_WRITE_IMM,
      wqe_opcode::SEND,      wqe_opcode::SEND_IMM,   wqe_opcode::RDMA_READ,
      wqe_opcode::ATOMIC_CS, wqe_opcode::BIND_MW,    wqe_opcode::RECEIVE_ERROR};
  what = {.place = static_cast<std::uint32_t>(random() % 64),
          .opcode = static_cast<std::uint8_t>(kOpcodes[random() % std::size(kOpcodes)]),
          .units = static_cast<std::uint8_t>(1 + random() % ShortSendWqe::kUnits),
          .fence = random() % 2 != 0,
          .stale = random() % 2 != 0};
  for (const std::size_t unit : {1, 2, 3}) {
    const auto at = std::span(bytes).subspan(unit * data_unit::kSize);
    util::MutableView<data_unit>(at).set(data_unit::byte_cnt,
                                         static_cast<std::uint32_t>(random() % 64));
  }
  return bytes;
}

TEST(JingzhaoShortSendWqe, SaysWhatTheDecoderOfAllSays) {
  std::mt19937 random(334);
  unsigned fast = 0;
  for (unsigned round = 0; round != 100'000; ++round) {
    SendWqe what;
    const auto bytes = random_wqe(random, what);
    constexpr rdma::QpType kTypes[] = {rdma::QpType::kRc, rdma::QpType::kUc, rdma::QpType::kUd};
    const SendRules rules{.type = kTypes[random() % 3], .message_max = 48};
    rdma::SendRequest shortly, fully;
    const auto before = tie(shortly);
    if (!ShortSendWqe(bytes.data()).decode_fast(what, rules, shortly)) {
      EXPECT_EQ(tie(shortly), before) << "round " << round;
      continue;
    }
    ++fast;
    const auto wqe = std::span(bytes).first(what.units * std::size_t{data_unit::kSize});
    ASSERT_EQ(decode_send_wqe(wqe, what, rules, fully), WqeFault::kNone) << "round " << round;
    ASSERT_EQ(tie(shortly), tie(fully)) << "round " << round;
    if (fully.opcode == rdma::SendOpcode::kRdmaWrite ||
        fully.opcode == rdma::SendOpcode::kRdmaWriteWithImmediate) {
      ASSERT_EQ(shortly.remote_address, fully.remote_address);
      ASSERT_EQ(shortly.rkey, fully.rkey);
    }
  }
  EXPECT_GT(fast, 5'000u);
}

}  // namespace
}  // namespace softhca::jingzhao::test
