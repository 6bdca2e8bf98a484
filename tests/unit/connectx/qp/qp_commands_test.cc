// Commands of QPs: their checks, the fields they use, and the results of QUERY_QP (mlx5 driver
// interface 7.2 to 7.5).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "connectx/base/resources.h"
#include "connectx/command/refusals.h"
#include "connectx/qp/qp_command_host.h"
#include "connectx/qp/queue_pair.h"
#include "connectx/qp/wqe_builder.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/resources.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using test::WqeBuilder;
using OptionalBit = qp_opt_param_bit;
using State = qp_state;

std::uint32_t code(State state) { return static_cast<std::uint32_t>(state); }
constexpr std::uint32_t mask(OptionalBit bit) { return 1u << static_cast<unsigned>(bit); }

// CREATE_QP ------------------------------------------------------------------------------------

TEST_F(RdmaQpCommands, NewQpIsInReset) {
  const auto qp = host_.create_qp();
  EXPECT_EQ(host_.query_state(qp), code(State::RST));
}

TEST_F(RdmaQpCommands, UnknownNumbersAreBadResources) {
  EXPECT_EQ(context_status([](auto c) { c.set(qpc::pd, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(context_status([](auto c) { c.set(qpc::uar_page, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(context_status([](auto c) { c.set(qpc::cqn_snd, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(context_status([](auto c) { c.set(qpc::cqn_rcv, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(context_status([](auto c) {
              c.set(qpc::rq_type, static_cast<std::uint32_t>(qp_rq_type::SRQ));
              c.set(qpc::srqn_rmpn_xrqn, 999);
            }),
            Status::BAD_RESOURCE);
}

// The objects of a QP stay in use in all its states, until the QP refers to others or is destroyed.
TEST_F(RdmaQpCommands, ObjectsThatAQpRefersToAreInUse) {
  host_.pd = host_.allocate_pd();
  host_.uar = host_.allocate_uar();
  auto& cqs = host_.device.driver().completion_queues();
  auto other = host_.create_cq(4);
  auto* first = cqs.find(Cqn(host_.cq.cqn));
  auto* second = cqs.find(Cqn(other.cqn));
  auto& resources = host_.device.driver().resources();
  const auto in_use = [&] {
    return resources.pds().is_used(Pd(host_.pd)) && resources.uars().is_used(UarPage(host_.uar));
  };
  EXPECT_FALSE(in_use());
  auto [qp, peer] = host_.connected();
  host_.destroy(peer);
  EXPECT_TRUE(in_use());
  EXPECT_EQ(first->users(), 2u);
  const auto destroy_cq = [&](std::uint32_t cqn) {
    using In = spec::connectx::destroy_cq_in;
    return host_
        .call<spec::connectx::destroy_cq_out, In>(Opcode::DESTROY_CQ,
                                                  [&](auto in) { in.set(In::cqn, cqn); })
        .status();
  };
  EXPECT_EQ(destroy_cq(host_.cq.cqn), Status::BAD_RES_STATE) << "both queues complete to it";
  const auto take = mask(OptionalBit::CQN_RCV);
  ASSERT_TRUE(
      host_.modify(qp, Opcode::RTS2RTS_QP, take, [&](auto c) { c.set(qpc::cqn_rcv, other.cqn); }));
  EXPECT_EQ(first->users(), 1u);
  EXPECT_EQ(second->users(), 1u);
  EXPECT_EQ(destroy_cq(other.cqn), Status::BAD_RES_STATE) << "the receive queue completes to it";
  EXPECT_EQ(
      status(host_.modify(qp, Opcode::RTS2RTS_QP, take, [&](auto c) { c.set(qpc::cqn_rcv, 999); })),
      Status::BAD_RESOURCE);
  EXPECT_EQ(second->users(), 1u) << "nothing has changed";
  host_.destroy(qp);
  EXPECT_FALSE(in_use());
  EXPECT_FALSE(first->in_use());
  EXPECT_FALSE(second->in_use());
  EXPECT_EQ(destroy_cq(other.cqn), Status::OK);
}

// PRM 7.2: "HCA validates that the UAR page used to post the command matches the one specified in
// the contexts of that object."
TEST_F(RdmaQpCommands, AQpListensOnlyToItsOwnDoorbellPage) {
  auto [qp, peer] = host_.connected();
  host_.run();  // entering RTS, a QP looks for WQEs without a doorbell
  host_.post_send(qp, WqeBuilder(WqeBuilder::Opcode::NOP, 0, qp.qpn).bytes());
  const auto ring = [&](std::uint32_t page) {
    host_.uar = page;
    host_.ring_send(qp);
    host_.device.run(host_.now);
    return host_.poll_all(host_.cq).size();
  };
  const auto own = host_.uar;
  EXPECT_EQ(ring(own + 1), 0u);
  EXPECT_EQ(ring(own), 1u);
}

TEST_F(RdmaQpCommands, CqAndDoorbellPageOfAQueueThatDoesNotExistMayBeMissing) {
  EXPECT_EQ(context_status([](auto c) {
              c.set(qpc::no_sq, 1);
              c.set(qpc::cqn_snd, 0);
              c.set(qpc::uar_page, 0);
            }),
            Status::OK);
  EXPECT_EQ(context_status([](auto c) {
              c.set(qpc::rq_type, static_cast<std::uint32_t>(qp_rq_type::ZERO_LENGTH_RQ));
              c.set(qpc::cqn_rcv, 0);
              c.set(qpc::srqn_rmpn_xrqn, 999);  // drivers always pass the dummy's number
            }),
            Status::OK);
}

TEST_F(RdmaQpCommands, ServicesThatAreNotOfferedAreRefused) {
  for (const auto service :
       {service_type::MLX, service_type::DCT, service_type::QP0, service_type::RAW_ETHERTYPE}) {
    EXPECT_EQ(context_status([&](auto c) { c.set(qpc::st, static_cast<std::uint32_t>(service)); }),
              Status::BAD_PARAM);
  }
  for (const auto service : {service_type::RC, service_type::UC, service_type::UD,
                             service_type::DCI, service_type::QP1}) {
    EXPECT_EQ(context_status([&](auto c) { c.set(qpc::st, static_cast<std::uint32_t>(service)); }),
              Status::OK);
  }
}

// The manual does not say what a second one does. mlx5_ib refuses it with EBUSY, which is this
// status, before it asks the device.
TEST_F(RdmaQpCommands, APortHasOneQp1) {
  const auto as_qp1 = [](auto c) { c.set(qpc::st, static_cast<std::uint32_t>(service_type::QP1)); };
  auto first = host_.create_qp({.service = service_type::QP1});
  EXPECT_EQ(context_status(as_qp1), Status::RESOURCE_BUSY);
  host_.destroy(first);
  EXPECT_EQ(context_status(as_qp1), Status::OK);
}

// 7.5: "pd 0 at create, pd filled at RST2INIT"
TEST_F(RdmaQpCommands, OnlyAUmrQpMayBeMadeWithoutPd) {
  const auto umr = static_cast<std::uint32_t>(service_type::REG_UMR);
  EXPECT_EQ(context_status([](auto c) { c.set(qpc::pd, 0); }), Status::BAD_RESOURCE);
  EXPECT_EQ(context_status([&](auto c) {
              c.set(qpc::pd, 0);
              c.set(qpc::st, umr);
            }),
            Status::OK);
}

TEST_F(RdmaQpCommands, PageListMustHoldBothQueues) {
  EXPECT_EQ(create_status([](auto) {}, 0), Status::BAD_INPUT_LEN);
  const auto longest = [](auto in) { in.sub(create_qp_in::qpc).set(qpc::log_sq_size, 15); };
  EXPECT_EQ(create_status(longest, 512), Status::BAD_INPUT_LEN) << "the receive queue is extra";
  EXPECT_EQ(create_status(longest, 513), Status::OK);
}

TEST_F(RdmaQpCommands, UserMemoryMustExist) {
  EXPECT_EQ(create_status([](auto in) { in.set(create_qp_in::wq_umem_valid, 1); }),
            Status::BAD_RESOURCE);
  EXPECT_EQ(context_status([](auto c) { c.set(qpc::dbr_umem_valid, 1); }), Status::BAD_RESOURCE);
}

TEST_F(RdmaQpCommands, RefusalsHaveWordsAndASection) {
  const auto out = host_.call<destroy_qp_out, destroy_qp_in>(
      Opcode::DESTROY_QP, [](auto in) { in.set(destroy_qp_in::qpn, 0x123); });
  ASSERT_FALSE(out);
  EXPECT_EQ(out.status(), Status::BAD_RESOURCE);
  EXPECT_EQ(out.reason(), "unknown QPN");
  const auto meaning = explain_syndrome(out.syndrome());
  ASSERT_TRUE(meaning);
  EXPECT_FALSE(meaning->section.empty());
}

TEST_F(RdmaQpCommands, DestroyedQpIsGone) {
  auto qp = host_.create_qp();
  host_.destroy(qp);
  EXPECT_EQ(status(host_.to_init(qp)), Status::BAD_RESOURCE);
}

// States ---------------------------------------------------------------------------------------

TEST_F(RdmaQpCommands, WayToReadyToSend) {
  auto qp = host_.create_qp();
  ASSERT_TRUE(host_.to_init(qp));
  EXPECT_EQ(host_.query_state(qp), code(State::INIT));
  ASSERT_TRUE(host_.modify(qp, Opcode::INIT2INIT_QP));
  ASSERT_TRUE(host_.to_rtr(qp, qp.qpn));
  EXPECT_EQ(host_.query_state(qp), code(State::RTR));
  ASSERT_TRUE(host_.to_rts(qp));
  EXPECT_EQ(host_.query_state(qp), code(State::RTS));
  ASSERT_TRUE(host_.modify(qp, Opcode::RTS2RTS_QP));
  ASSERT_TRUE(host_.to_error(qp));
  EXPECT_EQ(host_.query_state(qp), code(State::ERR));
  ASSERT_TRUE(host_.to_error(qp));
  ASSERT_TRUE(host_.to_reset(qp));
  EXPECT_EQ(host_.query_state(qp), code(State::RST));
  ASSERT_TRUE(host_.to_reset(qp));
}

TEST_F(RdmaQpCommands, OtherTransitionsAreRefusedAndChangeNothing) {
  auto qp = host_.create_qp();
  const auto refused = [&](Opcode opcode) {
    const auto before = host_.query_state(qp);
    const auto result = status(host_.modify(qp, opcode, 0, [](auto c) { c.set(qpc::mtu, 3); }));
    EXPECT_EQ(host_.query_state(qp), before);
    return result == Status::BAD_RESOURCE_STATE;
  };
  using enum command_opcode;
  for (const auto opcode :
       {INIT2INIT_QP, INIT2RTR_QP, RTR2RTS_QP, RTS2RTS_QP, SQERR2RTS_QP, SQD_RTS_QP, QP_2ERR}) {
    EXPECT_TRUE(refused(opcode)) << "in RST: " << to_string(opcode);
  }
  ASSERT_TRUE(host_.to_init(qp));
  for (const auto opcode : {RST2INIT_QP, RTR2RTS_QP, RTS2RTS_QP, SQERR2RTS_QP, SQD_RTS_QP}) {
    EXPECT_TRUE(refused(opcode)) << "in INIT: " << to_string(opcode);
  }
  ASSERT_TRUE(host_.to_rtr(qp, qp.qpn));
  for (const auto opcode : {RST2INIT_QP, INIT2INIT_QP, INIT2RTR_QP, RTS2RTS_QP}) {
    EXPECT_TRUE(refused(opcode)) << "in RTR: " << to_string(opcode);
  }
  ASSERT_TRUE(host_.to_rts(qp));
  for (const auto opcode : {RST2INIT_QP, INIT2INIT_QP, INIT2RTR_QP, RTR2RTS_QP, SQERR2RTS_QP}) {
    EXPECT_TRUE(refused(opcode)) << "in RTS: " << to_string(opcode);
  }
  ASSERT_TRUE(host_.to_error(qp));
  for (const auto opcode :
       {RST2INIT_QP, INIT2INIT_QP, INIT2RTR_QP, RTR2RTS_QP, RTS2RTS_QP, SQERR2RTS_QP}) {
    EXPECT_TRUE(refused(opcode)) << "in ERR: " << to_string(opcode);
  }
}

TEST_F(RdmaQpCommands, PathMtuIsChecked) {
  auto qp = host_.create_qp();
  ASSERT_TRUE(host_.to_init(qp));
  for (const auto bad : {0u, 6u, 7u}) {
    EXPECT_EQ(
        status(host_.modify(qp, Opcode::INIT2RTR_QP, 0, [&](auto c) { c.set(qpc::mtu, bad); })),
        Status::BAD_PARAM);
  }
}

// PRM 7.4.2: "DB records are aligned on a 4 byte boundary."
TEST_F(RdmaQpCommands, ANewDoorbellRecordIsAligned) {
  auto qp = host_.create_qp();
  const auto other = host_.allocate(16, 64);
  const auto move_to = [&](std::uint64_t record) {
    return status(
        host_.modify(qp, Opcode::RST2INIT_QP, 0, [&](auto c) { c.set(qpc::dbr_addr, record); }));
  };
  EXPECT_EQ(move_to(other + 2), Status::BAD_PARAM);
  EXPECT_EQ(move_to(other + 4), Status::OK);
  EXPECT_EQ(context(qp).get(qpc::dbr_addr), other + 4);
}

TEST_F(RdmaQpCommands, DepthsAboveTheCapabilityAreRefused) {
  auto qp = host_.create_qp();
  ASSERT_TRUE(host_.to_init(qp));
  EXPECT_EQ(status(host_.modify(qp, Opcode::INIT2RTR_QP, 0,
                                [](auto c) {
                                  c.set(qpc::mtu, 3);
                                  c.set(qpc::log_rra_max, 5);
                                })),
            Status::EXCEED_LIM);
}

// Fields that modify uses (7.4) ----------------------------------------------------------------

TEST_F(RdmaQpCommands, MandatoryAttributesNeedNoMaskBit) {
  auto [qp, peer] = host_.connected();
  const auto c = context(qp);
  EXPECT_EQ(c.get(qpc::remote_qpn), peer.qpn);
  EXPECT_EQ(c.get(qpc::mtu), 3u);
  EXPECT_EQ(c.get(qpc::next_rcv_psn), 0x1000u);
  EXPECT_EQ(c.get(qpc::next_send_psn), 0x1000u);
  EXPECT_EQ(c.get(qpc::retry_count), 7u);
  EXPECT_EQ(c.get(qpc::rnr_retry), 7u);
  EXPECT_EQ(c.get(qpc::min_rnr_nak), 1u);
  EXPECT_EQ(c.get(qpc::log_sra_max), 2u);
  EXPECT_EQ(c.get(qpc::log_rra_max), 2u);
  EXPECT_EQ(c.get(qpc::rre), 1u);
  const auto path = c.get(qpc::primary_address_path);
  EXPECT_EQ(path.get(ads::src_addr_index), 3u);
  EXPECT_EQ(path.get(ads::ack_timeout), 14u);
  EXPECT_EQ(path.get(ads::udp_sport), RdmaTestHost::kUdpPort);
  EXPECT_EQ(path.get(ads::vhca_port_num), 1u) << "INIT2RTR does not clear it";
  EXPECT_EQ(rdma::Mac::from(path.get(ads::rmac)), host_.mac);
}

TEST_F(RdmaQpCommands, ZeroFieldsDoNotClearWhatCreateHasSet) {
  auto qp = host_.create_qp({.user_index = 0x77});
  ASSERT_TRUE(host_.to_init(qp));
  const auto c = context(qp);
  EXPECT_EQ(c.get(qpc::dbr_addr), qp.record);
  EXPECT_EQ(c.get(qpc::user_index), 0x77u);
  EXPECT_EQ(c.get(qpc::log_sq_size), qp.options.log_sq);
  EXPECT_EQ(c.get(qpc::log_rq_size), qp.options.log_rq);
}

TEST_F(RdmaQpCommands, OptionalAttributesNeedTheirBit) {
  auto [qp, peer] = host_.connected();
  const auto change = [](auto c) {
    c.set(qpc::min_rnr_nak, 9);
    c.set(qpc::retry_count, 1);
  };
  ASSERT_TRUE(host_.modify(qp, Opcode::RTS2RTS_QP, 0, change));
  EXPECT_EQ(context(qp).get(qpc::min_rnr_nak), 1u);
  EXPECT_EQ(context(qp).get(qpc::rre), 1u);
  ASSERT_TRUE(host_.modify(
      qp, Opcode::RTS2RTS_QP,
      mask(OptionalBit::RNR_TIMEOUT) | mask(OptionalBit::RRE) | mask(OptionalBit::RETRY_COUNT),
      change));
  const auto c = context(qp);
  EXPECT_EQ(c.get(qpc::min_rnr_nak), 9u);
  EXPECT_EQ(c.get(qpc::rre), 0u);
  EXPECT_EQ(c.get(qpc::rwe), 1u) << "no bit for it";
  EXPECT_EQ(c.get(qpc::retry_count), 7u) << "its bit has no meaning from RTS to RTS";
}

// IBTA 11.2.4.2 Table 91: Q_Keys apply to datagrams, remote accesses to connections.
// mlx5dv_modify_qp_udp_sport uses opt_param_mask_95_32; the capability rts2rts_qp_udp_sport
// announces it.
TEST_F(RdmaQpCommands, TheUdpSourcePortOfAConnectedQpChanges) {
  auto [qp, peer] = host_.connected();
  const auto change = [&](std::uint32_t selected) {
    return host_.call<rts2rts_qp_out, rts2rts_qp_in>(Opcode::RTS2RTS_QP, [&](auto in) {
      in.set(rts2rts_qp_in::qpn, qp.qpn);
      in.set(rts2rts_qp_in::opt_param_udp_sport, selected);
      in.sub(rts2rts_qp_in::qpc).sub(qpc::primary_address_path).set(ads::udp_sport, 55555);
    });
  };
  const auto port = [&] {
    return host_.device.driver()
        .rdma()
        .find_qp(Qpn(qp.qpn))
        ->rdma_qp()
        .attributes()
        .path.udp_source_port;
  };
  ASSERT_TRUE(change(0));
  EXPECT_EQ(port(), RdmaTestHost::kUdpPort) << "not selected";
  ASSERT_TRUE(change(1));
  EXPECT_EQ(port(), 55555);
  EXPECT_EQ(context(qp).get(qpc::primary_address_path).get(ads::udp_sport), 55555u);
}

TEST_F(RdmaQpCommands, AttributesOfAnotherServiceAreNotTaken) {
  auto datagrams = host_.datagram_qp();
  EXPECT_EQ(context(datagrams).get(qpc::q_key), RdmaTestHost::kQkey);
  EXPECT_EQ(context(datagrams).get(qpc::mtu), 3u) << "the MTU of the port";
  EXPECT_EQ(context(datagrams).get(qpc::rre), 0u);
  auto [qp, peer] = host_.connected();
  const auto change = [](auto c) {
    c.set(qpc::q_key, 0x222);
    c.set(qpc::rre, 0);
  };
  for (auto* each : {&qp, &datagrams}) {
    ASSERT_TRUE(host_.modify(*each, Opcode::RTS2RTS_QP,
                             mask(OptionalBit::Q_KEY) | mask(OptionalBit::RRE), change));
  }
  EXPECT_EQ(context(qp).get(qpc::q_key), 0u);
  EXPECT_EQ(context(qp).get(qpc::rre), 0u);
  EXPECT_EQ(context(datagrams).get(qpc::q_key), 0x222u);
}

TEST_F(RdmaQpCommands, ReferencesOfModifyAreCheckedToo) {
  auto [qp, peer] = host_.connected();
  EXPECT_EQ(status(host_.modify(qp, Opcode::RTS2RTS_QP, mask(OptionalBit::CQN_RCV),
                                [](auto c) { c.set(qpc::cqn_rcv, 999); })),
            Status::BAD_RESOURCE);
  EXPECT_EQ(context(qp).get(qpc::cqn_rcv), host_.cq.cqn);
}

// UCX's RST2INIT contexts have 0 there, which is RC, for QPs of any service.
TEST_F(RdmaQpCommands, ServiceTypeIsThatOfCreateQpWhateverRst2InitSays) {
  for (const auto service : {service_type::DCI, service_type::UC}) {
    auto qp = host_.create_qp({.service = service});
    EXPECT_TRUE(host_.modify(qp, Opcode::RST2INIT_QP));
    EXPECT_EQ(context(qp).get(qpc::st), static_cast<std::uint32_t>(service));
    EXPECT_EQ(host_.query_state(qp), static_cast<std::uint32_t>(qp_state::INIT));
    host_.destroy(qp);
  }
}

TEST_F(RdmaQpCommands, CountersFollowTheSet) {
  const auto set = *host_.device.driver().resources().allocate_q_counter();
  auto qp = host_.create_qp();
  ASSERT_TRUE(host_.modify(qp, Opcode::RST2INIT_QP, 0, [&](auto c) {
    c.set(qpc::pd, host_.pd);
    c.set(qpc::counter_set_id, set.value());
  }));
  EXPECT_EQ(context(qp).get(qpc::counter_set_id), set.value());
}

// The commands of iPXE and of mlx5 of Linux 3.11 end with the context.
TEST_F(RdmaQpCommands, CommandsWithAContextMayEndWithIt) {
  auto qp = host_.create_qp();
  const auto shortened = [&](Opcode opcode, std::size_t size) {
    Input<rst2init_qp_in> in(opcode);
    (*in).set(rst2init_qp_in::qpn, qp.qpn);
    const auto context = (*in).sub(rst2init_qp_in::qpc);
    context.set(qpc::pd, host_.pd);
    context.set(qpc::mtu, static_cast<std::uint32_t>(qp_mtu::BYTES_1K));
    context.set(qpc::log_msg_max, 30);
    context.set(qpc::remote_qpn, qp.qpn);
    return host_.execute(std::span(in.bytes()).first(size), rst2init_qp_out::kSize).status();
  };
  constexpr std::size_t kWithContext = 0x100;
  EXPECT_EQ(shortened(Opcode::RST2INIT_QP, kWithContext - 4), Status::BAD_INPUT_LEN);
  EXPECT_EQ(shortened(Opcode::RST2INIT_QP, kWithContext), Status::OK);
  EXPECT_EQ(shortened(Opcode::INIT2INIT_QP, kWithContext), Status::OK);
  EXPECT_EQ(shortened(Opcode::INIT2RTR_QP, kWithContext), Status::OK);
  EXPECT_EQ(shortened(Opcode::RTR2RTS_QP, kWithContext), Status::OK);
  EXPECT_EQ(shortened(Opcode::RTS2RTS_QP, kWithContext), Status::OK);
  EXPECT_EQ(host_.query_state(qp), static_cast<std::uint32_t>(qp_state::RTS));
}

}  // namespace
}  // namespace softhca::connectx
