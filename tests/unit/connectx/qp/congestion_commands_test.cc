// QUERY_CONG_STATUS to QUERY_CONG_STATISTICS (mlx5 driver interface 7.13), as used by
// Linux's debugfs files (cc_params) and by "rdma statistic".
#include <gtest/gtest.h>

#include "connectx/qp/data_path.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;
using Rp = cong_control_r_roce_ecn_rp;
using Np = cong_control_r_roce_ecn_np;
using Protocol = cong_protocol;
using Code = command_status;

class CongestionCommands : public RdmaDataPath {
 protected:
  template <class Layout, class Field>
  std::uint32_t parameter(Protocol protocol, Field field) {
    using In = query_cong_params_in;
    using Out = query_cong_params_out;
    const auto reply = host_.call<Out, In>(Opcode::QUERY_CONG_PARAMS, [&](auto in) {
      in.set(In::cong_protocol, static_cast<std::uint32_t>(protocol));
    });
    EXPECT_TRUE(reply.ok());
    return util::View<Layout>(reply.template as<Out>().get(Out::congestion_parameters)).get(field);
  }
  template <class Layout, class Field>
  Reply set(Protocol protocol, std::uint32_t select, Field field, std::uint32_t value) {
    using In = modify_cong_params_in;
    return host_.call<modify_cong_params_out, In>(Opcode::MODIFY_CONG_PARAMS, [&](auto in) {
      in.set(In::cong_protocol, static_cast<std::uint32_t>(protocol));
      in.set(In::field_select, select);
      util::MutableView<Layout>(in.sub(In::congestion_parameters)).set(field, value);
    });
  }
  Reply set_status(std::uint32_t protocol, std::uint32_t priority, bool enable, bool tag = false) {
    using In = modify_cong_status_in;
    return host_.call<modify_cong_status_out, In>(Opcode::MODIFY_CONG_STATUS, [&](auto in) {
      in.set(In::cong_protocol, protocol);
      in.set(In::priority, priority);
      in.set(In::enable, enable);
      in.set(In::tag_enable, tag);
    });
  }
  Reply query_status(std::uint32_t protocol, std::uint32_t priority) {
    using In = query_cong_status_in;
    return host_.call<query_cong_status_out, In>(Opcode::QUERY_CONG_STATUS, [&](auto in) {
      in.set(In::cong_protocol, protocol);
      in.set(In::priority, priority);
    });
  }
  bool is_enabled(std::uint32_t protocol, std::uint32_t priority) {
    const auto reply = query_status(protocol, priority);
    EXPECT_TRUE(reply.ok());
    return reply.as<query_cong_status_out>().get(query_cong_status_out::enable) != 0;
  }
  struct Statistics {
    std::uint64_t flows, handled, ignored, marked, sent;
  };
  Statistics statistics(bool clear = false) {
    using In = query_cong_statistics_in;
    using Out = query_cong_statistics_out;
    const auto reply = host_.call<Out, In>(Opcode::QUERY_CONG_STATISTICS,
                                           [&](auto in) { in.set(In::clear, clear); });
    EXPECT_TRUE(reply.ok());
    const auto out = reply.as<Out>();
    return {out.get(Out::rp_cur_flows), out.get(Out::rp_cnp_handled), out.get(Out::rp_cnp_ignored),
            out.get(Out::np_ecn_marked_roce_packets), out.get(Out::np_cnp_sent)};
  }
};

constexpr auto kRp = static_cast<std::uint32_t>(Protocol::R_ROCE_ECN_RP);
constexpr auto kNp = static_cast<std::uint32_t>(Protocol::R_ROCE_ECN_NP);

TEST_F(CongestionCommands, ParametersAreThoseOfTheCardUntilTheyAreChanged) {
  EXPECT_EQ(parameter<Rp>(Protocol::R_ROCE_ECN_RP, Rp::dce_tcp_g), 1019u);
  EXPECT_EQ(parameter<Rp>(Protocol::R_ROCE_ECN_RP, Rp::rpg_gd), 11u);
  EXPECT_EQ(parameter<Rp>(Protocol::R_ROCE_ECN_RP, Rp::clamp_tgt_rate_after_time_inc), 1u);
  EXPECT_EQ(parameter<Np>(Protocol::R_ROCE_ECN_NP, Np::cnp_dscp), 48u);
  EXPECT_EQ(parameter<Np>(Protocol::R_ROCE_ECN_NP, Np::cnp_802p_prio), 6u);
  EXPECT_TRUE(set<Rp>(Protocol::R_ROCE_ECN_RP, 1u << 12, Rp::dce_tcp_g, 1000).ok());
  EXPECT_EQ(parameter<Rp>(Protocol::R_ROCE_ECN_RP, Rp::dce_tcp_g), 1000u);
  EXPECT_EQ(host_.device.driver().rdma().transport().congestion().reaction.dce_tcp_g, 1000u);
}

TEST_F(CongestionCommands, OnlySelectedParametersChange) {
  EXPECT_TRUE(set<Rp>(Protocol::R_ROCE_ECN_RP, 1u << 7, Rp::rpg_hai_rate, 77).ok());
  EXPECT_EQ(parameter<Rp>(Protocol::R_ROCE_ECN_RP, Rp::rpg_hai_rate), 50u);
  EXPECT_EQ(parameter<Rp>(Protocol::R_ROCE_ECN_RP, Rp::rpg_ai_rate),
            0u);  // the parameter's bit, then its value
  EXPECT_TRUE(set<Np>(Protocol::R_ROCE_ECN_NP, 1u << 4, Np::cnp_802p_prio, 3).ok());
  EXPECT_EQ(parameter<Np>(Protocol::R_ROCE_ECN_NP, Np::cnp_802p_prio), 3u);
  EXPECT_EQ(parameter<Np>(Protocol::R_ROCE_ECN_NP, Np::cnp_dscp), 48u);
}

TEST_F(CongestionCommands, AboveAMaximumNothingIsTaken) {
  const auto status = [&](unsigned bit, auto field, std::uint32_t value) {
    return set<Rp>(Protocol::R_ROCE_ECN_RP, 1u << bit, field, value).status();
  };
  EXPECT_EQ(status(12, Rp::dce_tcp_g, 1024), Code::BAD_PARAM);
  EXPECT_EQ(status(9, Rp::rpg_min_dec_fac, 101), Code::BAD_PARAM);
  EXPECT_EQ(status(6, Rp::rpg_max_rate, 100'001), Code::BAD_PARAM);
  EXPECT_EQ(status(16, Rp::rpg_gd, 16), Code::BAD_PARAM);
  EXPECT_EQ(parameter<Rp>(Protocol::R_ROCE_ECN_RP, Rp::dce_tcp_g), 1019u);
}

TEST_F(CongestionCommands, UnknownBitsOfFieldSelectAreRefusedAndChangeNothing) {
  for (const unsigned bit : {0u, 17u, 31u}) {
    EXPECT_EQ(set<Rp>(Protocol::R_ROCE_ECN_RP, 1u << 12 | 1u << bit, Rp::dce_tcp_g, 1).status(),
              Code::BAD_PARAM)
        << bit;
  }
  for (const unsigned bit : {1u, 5u, 31u}) {
    EXPECT_EQ(set<Np>(Protocol::R_ROCE_ECN_NP, 1u << 3 | 1u << bit, Np::cnp_dscp, 1).status(),
              Code::BAD_PARAM)
        << bit;
  }
  EXPECT_EQ(parameter<Rp>(Protocol::R_ROCE_ECN_RP, Rp::dce_tcp_g), 1019u);
  EXPECT_EQ(parameter<Np>(Protocol::R_ROCE_ECN_NP, Np::cnp_dscp), 48u);
}

TEST_F(CongestionCommands, OtherProtocolsAreRefused) {
  for (const auto protocol : {Protocol(0), Protocol::R_ROCE_GENERAL, Protocol(9)}) {
    EXPECT_EQ(set<Rp>(protocol, 1u << 12, Rp::dce_tcp_g, 1).status(), Code::BAD_PARAM);
    EXPECT_EQ(query_status(static_cast<std::uint32_t>(protocol), 0).status(), Code::BAD_PARAM);
  }
}

TEST_F(CongestionCommands, EachPriorityIsTurnedOffAlone) {
  for (const auto protocol : {kRp, kNp}) {
    for (std::uint32_t priority = 0; priority != 8; ++priority) {
      EXPECT_TRUE(is_enabled(protocol, priority));
    }
    EXPECT_TRUE(set_status(protocol, 3, false).ok());
    EXPECT_FALSE(is_enabled(protocol, 3));
    EXPECT_TRUE(is_enabled(protocol, 2));
    EXPECT_TRUE(set_status(protocol, 3, true).ok());
    EXPECT_TRUE(is_enabled(protocol, 3));
    EXPECT_EQ(query_status(protocol, 8).status(), Code::BAD_PARAM);
    EXPECT_EQ(set_status(protocol, 0, true, true).status(), Code::BAD_PARAM);
  }
}

TEST_F(CongestionCommands, StatisticsCountMarksAndNotifications) {
  auto a = host_.datagram_qp();
  auto b = host_.datagram_qp();
  const auto buffer = host_.allocate(256, 64);
  host_.post_receive(b, buffer, 256);
  auto bytes = wqe(a, WqeBuilder::Opcode::SEND)
                   .datagram(b.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3)
                   .inline_data("marked")
                   .bytes();
  using Av = wqe_datagram_segment;
  util::MutableView<Av>(std::span(bytes).subspan(wqe_ctrl_segment::kSize)).set(Av::tclass, 3);
  host_.post_send(a, bytes);
  host_.ring_send(a);
  host_.run();
  auto seen = statistics();
  EXPECT_EQ(seen.marked, 1u);
  EXPECT_EQ(seen.sent, 1u);
  EXPECT_EQ(seen.handled, 1u);
  EXPECT_EQ(seen.ignored, 0u);
  EXPECT_EQ(seen.flows, 1u);
  statistics(true);
  seen = statistics();
  EXPECT_EQ(seen.marked + seen.sent + seen.handled + seen.ignored, 0u);
}

}  // namespace
}  // namespace softhca::connectx::test
