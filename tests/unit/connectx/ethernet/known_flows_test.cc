// Frames of a cached flow take a fast path, whose result must equal that of the slow path.
#include <gtest/gtest.h>

#include <cstring>

#include "connectx/steering/steering_host.h"

namespace softhca::connectx::test {
namespace {

class KnownFlows : public EthernetSteering {
 protected:
  /// Steers to TIR `number`, with `number + 1` as flow tag.
  void steer(std::uint32_t table, std::uint32_t group, std::uint32_t index, unsigned number,
             const EthernetHost::Fill<fte_match_param>& value = {}) {
    expect_set(host.set_flow(table, group, index, {tir(number)}, value, number + 1));
  }
  /// The TIR that received a frame, from the flow tag in its CQE; -2: none. It executes no command,
  /// because a command flushes the flow cache.
  int where(const FrameSpec& spec) {
    host.arrive(make_frame(spec));
    return static_cast<int>(last_tag() + 1) - 2;
  }
};

TEST_F(KnownFlows, ANewRuleCountsForTheNextFrame) {
  const auto table = host.create_table(0, 2);
  const auto group = host.create_group(table, 0, 3);
  steer(table, group, 1, 1);
  EXPECT_EQ(where({}), 1);
  EXPECT_EQ(where({}), 1);
  steer(table, group, 0, 2);
  EXPECT_EQ(where({}), 2);
  EXPECT_EQ(where({}), 2);
}

TEST_F(KnownFlows, FramesThatDifferInTcpFlagsGoWhereARuleForTheseSends) {
  const auto table = host.create_table(0, 2);
  const auto by_flags = host.create_group(table, 0, 1, field(Outer::tcp_flags, 0x1FF));
  const auto any = host.create_group(table, 2, 2);
  steer(table, by_flags, 0, 1, field(Outer::tcp_flags, 0x18));  // ACK, PSH, as in make_frame()
  steer(table, any, 2, 2);
  auto syn = make_frame({});
  syn[14 + 20 + 13] = std::byte{2};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(where({}), 1);
    host.arrive(syn);
    EXPECT_EQ(last_tag(), 3u);
  }
}

TEST_F(KnownFlows, EachHasItsOwnWay) {
  const auto table = host.create_table(0, 4);
  const auto mask = field(Outer::tcp_dport, 0xFFFF);
  const auto group = host.create_group(table, 0, 3, mask);
  for (unsigned i = 0; i < kTirs; ++i) steer(table, group, i, i, field(Outer::tcp_dport, 80 + i));
  for (int round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < kTirs; ++i) {
      const auto port = static_cast<std::uint16_t>(80 + i);
      EXPECT_EQ(where({.destination_port = port}), static_cast<int>(i));
      EXPECT_EQ(where({.ipv6 = true, .destination_port = port}), static_cast<int>(i));
    }
    EXPECT_EQ(where({.destination_port = 90}), -2);
  }
}

/// A frame of a cached flow must have the same CQE as one of an uncached flow.
TEST_F(KnownFlows, TheCompletionIsThatOfAFrameThatIsNot) {
  const auto table = host.create_table(0, 0);
  steer(table, host.create_group(table, 0, 0), 0, 1);
  for (const bool udp : {false, true}) {
    for (const bool ipv6 : {false, true}) {
      for (const int tci : {-1, 0x6005}) {
        for (const std::size_t payload : {0, 1, 99, 200}) {
          const FrameSpec spec{.ipv6 = ipv6, .udp = udp, .vlan_tci = tci, .payload = payload};
          auto frame = make_frame(spec);
          fix_checksums(frame, spec);
          auto other = spec;
          other.payload = 17;
          host.arrive(make_frame(other));  // puts the flow into the cache
          ASSERT_NE(last_tag(), ~0u);
          host.arrive(frame);
          auto known = host.poll(cqn);
          (void)host.received(rqns[1]);  // a command, which flushes the flow cache
          host.arrive(frame);
          auto unknown = host.poll(cqn);
          ASSERT_FALSE(known.empty());
          ASSERT_FALSE(unknown.empty());
          // All but the counter and the owner bit.
          known.resize(0x3C);
          unknown.resize(0x3C);
          EXPECT_EQ(known, unknown) << udp << ipv6 << tci << " " << payload;
          for (int i = 0; i < 3; ++i) host.post_receive(rqns[1], 512);
        }
      }
    }
  }
}

}  // namespace
}  // namespace softhca::connectx::test
