// A send WQE of an SQ like the previous one is decoded on a fast path. The result must equal the
// slow path's, and a WQE that asks for anything else must not pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "connectx/ethernet/eth_wqe_template.h"
#include "connectx/ethernet/wqe.h"

namespace softhca::connectx::test {
namespace {

using spec::connectx::wqe_opcode;

Bytes random_eth_wqe(std::mt19937& random, std::uint16_t index) {
  // Runs of one form, as in real queues.
  const bool is_plain = index % 64 < 48;
  const auto chance = [&](unsigned of) { return !is_plain && random() % of == 0; };
  std::array<std::byte, 40> header;
  std::ranges::generate(header, [&] { return std::byte(random()); });
  constexpr std::array<std::size_t, 4> kSizes{18, 18, 14, 2};
  const auto inlined = std::span(header).first(chance(8) ? 34 : kSizes[index / 64 % 4]);
  Wqe wqe(chance(8) ? wqe_opcode::LSO : wqe_opcode::SEND, 0x41, index);
  if (random() % 4 == 0) wqe.unsignaled();
  const bool tagged = chance(8);
  wqe.eth(tagged ? inlined.first(0) : inlined, !chance(4),
          static_cast<std::uint16_t>(chance(4) ? random() % 1500 : 0));
  if (tagged) wqe.insert_vlan(static_cast<std::uint16_t>(random() % 4096));
  for (auto left = chance(8) ? 2u : 1u; left != 0; --left) {
    const auto size = static_cast<std::uint32_t>(random() % 8 == 0 ? 0 : random() % (1 << 21));
    if (chance(8)) {
      wqe.inline_data(std::span(header).first(1 + random() % 12));
    } else {
      wqe.pointer(static_cast<std::uint32_t>(random()), random(), size);
    }
  }
  return wqe.finish();
}

TEST(EthWqeTemplate, GivesWhatTheSlowPathGives) {
  std::mt19937 random(74);
  EthWqeTemplate last;
  unsigned fast = 0;
  for (std::uint32_t i = 0; i != 20'000; ++i) {
    const auto wqe = random_eth_wqe(random, static_cast<std::uint16_t>(i));
    // Whatever follows a short WQE in its ring does not belong to it.
    std::array<std::byte, kWqeBasicBlock> block;
    block.fill(std::byte(random()));
    std::ranges::copy(std::span(wqe).first(std::min(wqe.size(), block.size())), block.begin());
    const auto content = last.decode_fast(block);
    EthSendWqe full;
    const auto decoded = full.decode(wqe);
    if (content) {
      ++fast;
      ASSERT_TRUE(decoded) << "what is refused must not pass";
      ASSERT_TRUE(full.l3_checksum && full.l4_checksum);
      ASSERT_FALSE(full.lso || full.multi_packet || full.insert_tag);
      ASSERT_TRUE(std::ranges::equal(content->header, full.inline_header));
      ASSERT_EQ(full.segment_count, 1u);
      const auto& segment = full.segments[0];
      ASSERT_EQ(segment.inline_data.data(), nullptr);
      ASSERT_EQ(content->key, segment.key);
      ASSERT_EQ(content->address, segment.address);
      ASSERT_EQ(content->size, segment.size);
    }
    if (decoded) last.remember(wqe, full);
  }
  EXPECT_GT(fast, 5'000u);
}

}  // namespace
}  // namespace softhca::connectx::test
