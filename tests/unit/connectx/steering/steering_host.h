// TIRs with an RQ each, which shows where a frame was steered, and short names for flows.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

#include "connectx/ethernet/ethernet_host.h"
#include "connectx/steering/flow_table.h"
#include "util/endian.h"

namespace softhca::connectx::test {

using namespace spec::connectx;  // only tests include this header
using Outer = fte_match_set_lyr_2_4;
using Param = util::MutableView<fte_match_param>;

inline constexpr std::uint64_t kOwnMac = 0x020000000001;
inline constexpr std::uint64_t kBroadcast = 0xFFFFFFFFFFFF;

inline util::MutableView<Outer> outer(Param param) {
  return param.sub(fte_match_param::outer_headers);
}

inline auto dmac(std::uint64_t mac) {
  return [mac](Param param) {
    const auto bytes = outer(param).sub(Outer::dmac);
    util::store_be16(bytes.data(), static_cast<std::uint16_t>(mac >> 32));
    util::store_be32(bytes.data() + 2, static_cast<std::uint32_t>(mac));
  };
}
template <class Field>
auto field(Field f, std::uint32_t value) {
  return [f, value](Param param) { outer(param).set(f, value); };
}
template <class A, class B>
auto both(A a, B b) {
  return [a, b](Param param) {
    a(param);
    b(param);
  };
}

/// TIRs with an RQ each, which shows where a frame was steered.
class EthernetSteering : public ::testing::Test {
 protected:
  static constexpr unsigned kTirs = 4;

  EthernetSteering() : cqn(host.create_cq(8)) {
    for (unsigned i = 0; i < kTirs; ++i) {
      rqns[i] = host.create_rq(cqn, 6, 4);
      tirns[i] = host.create_direct_tir(rqns[i]);
      for (int n = 0; n < 30; ++n) host.post_receive(rqns[i], 256);
    }
  }
  EthernetHost::Destination tir(unsigned i) { return {destination_type::TIR, tirns[i]}; }
  static EthernetHost::Destination table(std::uint32_t id) {
    return {destination_type::FLOW_TABLE, id};
  }
  /// The TIRs that received the frame, as bits.
  unsigned where_bytes(std::span<const std::byte> frame) {
    std::array<std::uint32_t, kTirs> before{};
    for (unsigned i = 0; i < kTirs; ++i) before[i] = host.received(rqns[i]);
    host.arrive(frame);
    unsigned result = 0;
    for (unsigned i = 0; i < kTirs; ++i) {
      if (host.received(rqns[i]) != before[i]) result |= 1u << i;
    }
    return result;
  }
  unsigned where(const FrameSpec& spec) {
    const auto frame = make_frame(spec);
    return where_bytes(frame);
  }
  std::uint32_t last_tag() {
    std::uint32_t tag = ~0u;
    for (auto cqe = host.poll(cqn); !cqe.empty(); cqe = host.poll(cqn)) {
      tag = util::View<cqe64>(cqe).get(cqe64::flow_tag);
    }
    return tag;
  }
  void expect_set(const Reply& answer) { EXPECT_TRUE(answer.ok()) << answer.reason(); }

  EthernetHost host{{.model = without_inline_headers()}};
  std::uint32_t cqn;
  std::array<std::uint32_t, kTirs> rqns{};
  std::array<std::uint32_t, kTirs> tirns{};
};

}  // namespace softhca::connectx::test
