// Commands of QPs, SRQs and RoCE addresses: what they check, what they take, what QUERY_QP tells
// (mlx5 driver interface 7.2 to 7.10).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/qp/queue_pair.h"
#include "connectx/rdma_test_host.h"
#include "connectx/rdma_wqe_builder.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "spec/connectx/vport.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using namespace spec::connectx;
using testing::HostQp;
using testing::QpOptions;
using testing::RdmaTestHost;
using testing::WqeBuilder;
using Opcode = command_opcode;
using Bit = qp_opt_param_bit;
using State = qp_state;
using qpc = spec::connectx::qpc;
using ads = spec::connectx::ads;

std::uint32_t code(State state) { return static_cast<std::uint32_t>(state); }
constexpr std::uint32_t mask(Bit bit) { return 1u << static_cast<unsigned>(bit); }

class RdmaQpCommands : public ::testing::Test {
 protected:
  using Change = std::function<void(util::MutableView<create_qp_in>)>;

  /// CREATE_QP with a good context that `change` spoils.
  Status create_status(const Change& change, std::size_t pages = 8) {
    auto qp = host_.allocate_qp({});
    const auto out = host_.execute<create_qp_in, create_qp_out>(
        Opcode::CREATE_QP, create_qp,
        [&](auto in) {
          host_.fill_create(in, qp);
          change(in);
        },
        host_.page_list(qp.ring, pages * 4096));
    return out ? Status::OK : out.error().status;
  }
  Status context_status(const std::function<void(util::MutableView<qpc>)>& change) {
    return create_status([&](auto in) { change(in.sub(create_qp_in::qpc)); });
  }
  util::View<qpc> context(const HostQp& qp) {
    queried_ = *host_.execute<query_qp_in, query_qp_out>(
        Opcode::QUERY_QP, query_qp, [&](auto in) { in.set(query_qp_in::qpn, qp.qpn); });
    return util::View<query_qp_out>(queried_).get(query_qp_out::qpc);
  }
  static Status status(const CommandResult& result) {
    return result ? Status::OK : result.error().status;
  }

  RdmaTestHost host_;
  std::vector<std::byte> queried_;
};

// CREATE_QP ------------------------------------------------------------------------------------

TEST_F(RdmaQpCommands, NewQpIsInReset) {
  const auto qp = host_.create_qp();
  EXPECT_TRUE(host_.device.rdma().owns(Qpn(qp.qpn)));
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

// What a QP refers to is in use, through all its states, until it refers to something else or goes.
TEST_F(RdmaQpCommands, WhatAQpRefersToIsInUse) {
  auto& cqs = host_.device.completion_queues();
  auto other = host_.create_cq(4);
  auto* first = cqs.find(Cqn(host_.cq.cqn));
  auto* second = cqs.find(Cqn(other.cqn));
  auto& resources = host_.device.resources();
  const auto in_use = [&] {
    return resources.pds().is_used(Pd(host_.pd)) && resources.uars().is_used(UarPage(host_.uar));
  };
  EXPECT_FALSE(in_use());
  auto [qp, peer] = host_.connected();
  host_.destroy(peer);
  EXPECT_TRUE(in_use());
  EXPECT_EQ(first->users(), 2u);
  const auto take = mask(Bit::CQN_RCV);
  ASSERT_TRUE(
      host_.modify(qp, Opcode::RTS2RTS_QP, take, [&](auto c) { c.set(qpc::cqn_rcv, other.cqn); }));
  EXPECT_EQ(first->users(), 1u);
  EXPECT_EQ(second->users(), 1u);
  EXPECT_EQ(
      status(host_.modify(qp, Opcode::RTS2RTS_QP, take, [&](auto c) { c.set(qpc::cqn_rcv, 999); })),
      Status::BAD_RESOURCE);
  EXPECT_EQ(second->users(), 1u) << "nothing has changed";
  host_.destroy(qp);
  EXPECT_FALSE(in_use());
  EXPECT_FALSE(first->in_use());
  EXPECT_FALSE(second->in_use());
}

// PRM 7.2: "HCA validates that the UAR page used to post the command matches the one specified in
// the contexts of that object."
TEST_F(RdmaQpCommands, AQpListensOnlyToItsOwnDoorbellPage) {
  auto [qp, peer] = host_.connected();
  host_.run();  // a QP that comes to RTS looks for WQEs by itself
  host_.post_send(qp, WqeBuilder(WqeBuilder::Opcode::NOP, 0, qp.qpn).bytes());
  const auto ring = [&](std::uint32_t page) {
    constexpr std::uint32_t kPageSize = 4096;
    constexpr std::uint32_t kSendDoorbell = 0x800;
    std::array<std::byte, 8> doorbell{};
    util::store_be32(doorbell.data() + 4, qp.qpn << 8);
    host_.device.write_bar(0, std::uint64_t{page} * kPageSize + kSendDoorbell, doorbell);
    host_.device.run(host_.now);
    return host_.poll_all(host_.cq).size();
  };
  EXPECT_EQ(ring(host_.uar + 1), 0u);
  EXPECT_EQ(ring(host_.uar), 1u);
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
              c.set(qpc::srqn_rmpn_xrqn, 999);  // the dummy's number is told in any case
            }),
            Status::OK);
}

TEST_F(RdmaQpCommands, ServicesThatAreNotOfferedAreRefused) {
  for (const auto service : {service_type::XRC, service_type::MLX, service_type::DCI,
                             service_type::QP0, service_type::RAW_ETHERTYPE}) {
    EXPECT_EQ(context_status([&](auto c) { c.set(qpc::st, static_cast<std::uint32_t>(service)); }),
              Status::BAD_PARAM);
  }
  for (const auto service :
       {service_type::RC, service_type::UC, service_type::UD, service_type::QP1}) {
    EXPECT_EQ(context_status([&](auto c) { c.set(qpc::st, static_cast<std::uint32_t>(service)); }),
              Status::OK);
  }
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

TEST_F(RdmaQpCommands, UserMemoryObjectsAreRefused) {
  EXPECT_EQ(create_status([](auto in) { in.set(create_qp_in::wq_umem_valid, 1); }),
            Status::BAD_PARAM);
  EXPECT_EQ(context_status([](auto c) { c.set(qpc::dbr_umem_valid, 1); }), Status::BAD_PARAM);
}

TEST_F(RdmaQpCommands, RefusalsHaveWordsAndASection) {
  const auto out = host_.execute<destroy_qp_in, destroy_qp_out>(
      Opcode::DESTROY_QP, destroy_qp, [](auto in) { in.set(destroy_qp_in::qpn, 0x123); });
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().status, Status::BAD_RESOURCE);
  EXPECT_EQ(out.error().text, "unknown QPN");
  EXPECT_FALSE(out.error().section.empty());
  EXPECT_NE(out.error().syndrome, 0u);
}

TEST_F(RdmaQpCommands, DestroyedQpIsGone) {
  auto qp = host_.create_qp();
  host_.destroy(qp);
  EXPECT_FALSE(host_.device.rdma().owns(Qpn(qp.qpn)));
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

// What modify takes (7.4) ----------------------------------------------------------------------

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
  ASSERT_TRUE(host_.modify(qp, Opcode::RTS2RTS_QP,
                           mask(Bit::RNR_TIMEOUT) | mask(Bit::RRE) | mask(Bit::RETRY_COUNT),
                           change));
  const auto c = context(qp);
  EXPECT_EQ(c.get(qpc::min_rnr_nak), 9u);
  EXPECT_EQ(c.get(qpc::rre), 0u);
  EXPECT_EQ(c.get(qpc::rwe), 1u) << "no bit for it";
  EXPECT_EQ(c.get(qpc::retry_count), 7u) << "its bit has no meaning from RTS to RTS";
}

// IBTA 11.2.4.2 Table 91: Q_Keys are for datagrams, remote accesses for connections.
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
    ASSERT_TRUE(host_.modify(*each, Opcode::RTS2RTS_QP, mask(Bit::Q_KEY) | mask(Bit::RRE), change));
  }
  EXPECT_EQ(context(qp).get(qpc::q_key), 0u);
  EXPECT_EQ(context(qp).get(qpc::rre), 0u);
  EXPECT_EQ(context(datagrams).get(qpc::q_key), 0x222u);
}

TEST_F(RdmaQpCommands, ReferencesOfModifyAreCheckedToo) {
  auto [qp, peer] = host_.connected();
  EXPECT_EQ(status(host_.modify(qp, Opcode::RTS2RTS_QP, mask(Bit::CQN_RCV),
                                [](auto c) { c.set(qpc::cqn_rcv, 999); })),
            Status::BAD_RESOURCE);
  EXPECT_EQ(context(qp).get(qpc::cqn_rcv), host_.cq.cqn);
}

TEST_F(RdmaQpCommands, ServiceTypeCannotChange) {
  auto qp = host_.create_qp();
  qp.options.service = service_type::UC;
  EXPECT_EQ(status(host_.to_init(qp)), Status::BAD_PARAM);
}

TEST_F(RdmaQpCommands, CountersFollowTheSet) {
  const auto set = *host_.device.resources().allocate_q_counter();
  auto qp = host_.create_qp();
  ASSERT_TRUE(host_.modify(qp, Opcode::RST2INIT_QP, 0, [&](auto c) {
    c.set(qpc::pd, host_.pd);
    c.set(qpc::counter_set_id, set.value());
  }));
  EXPECT_EQ(context(qp).get(qpc::counter_set_id), set.value());
}

// SRQs -----------------------------------------------------------------------------------------

class RdmaSrqCommands : public RdmaQpCommands {
 protected:
  RdmaSrqCommands() : xrcd_(host_.device.resources().xrcds().allocate()->value()) {}

  tl::expected<std::uint32_t, Refusal> create_rmp(
      const std::function<void(util::MutableView<wq>)>& change = {}) {
    const auto ring = host_.allocate(4096);
    const auto record = host_.allocate(8, 64);
    const auto out = host_.execute<create_rmp_in, create_rmp_out>(
        Opcode::CREATE_RMP, connectx::create_rmp,
        [&](auto in) {
          in.sub(create_rmp_in::rmp_context).set(rmp_context::state, rmp_state_);
          const auto queue = in.sub(create_rmp_in::rmp_context).sub(rmp_context::wq);
          queue.set(wq::log_wq_sz, 4);
          queue.set(wq::log_wq_stride, 5);
          queue.set(wq::pd, host_.pd);
          queue.set(wq::dbr_addr, record);
          if (change) change(queue);
        },
        host_.page_list(ring, 4096));
    if (!out) return tl::unexpected(out.error());
    return util::View<create_rmp_out>(*out).get(create_rmp_out::rmpn);
  }
  /// MODIFY_RMP with a limit of 3.
  Status arm_rmp(std::uint32_t rmp, rmp_state from, rmp_state to) {
    const auto out =
        host_.execute<modify_rmp_in, modify_rmp_out>(Opcode::MODIFY_RMP, modify_rmp, [&](auto in) {
          in.set(modify_rmp_in::rmpn, rmp);
          in.set(modify_rmp_in::rmp_state, static_cast<std::uint32_t>(from));
          in.sub(modify_rmp_in::modify_bitmask).set(rmp_bitmask::lwm, 1);
          const auto context = in.sub(modify_rmp_in::rmp_context);
          context.set(rmp_context::state, static_cast<std::uint32_t>(to));
          context.sub(rmp_context::wq).set(wq::lwm, 3);
        });
    return out ? Status::OK : out.error().status;
  }
  std::uint32_t rmp_state_ = static_cast<std::uint32_t>(rmp_state::RDY);  ///< for CREATE_RMP
  tl::expected<std::uint32_t, Refusal> create_xrc_srq(
      const std::function<void(util::MutableView<xrc_srq_context>)>& change = {}) {
    const auto ring = host_.allocate(4096);
    const auto out = host_.execute<create_xrc_srq_in, create_xrc_srq_out>(
        Opcode::CREATE_XRC_SRQ, connectx::create_xrc_srq,
        [&](auto in) {
          const auto c = in.sub(create_xrc_srq_in::xrc_srq_context_entry);
          c.set(xrc_srq_context::log_rq_stride, 1);
          c.set(xrc_srq_context::log_xrc_srq_size, 3);
          c.set(xrc_srq_context::pd, host_.pd);
          c.set(xrc_srq_context::cqn, host_.cq.cqn);
          c.set(xrc_srq_context::xrcd, xrcd_);
          c.set(xrc_srq_context::dbr_addr, host_.allocate(8, 64));
          if (change) change(c);
        },
        host_.page_list(ring, 4096));
    if (!out) return tl::unexpected(out.error());
    return util::View<create_xrc_srq_out>(*out).get(create_xrc_srq_out::xrc_srqn);
  }
  Status destroy_rmp(std::uint32_t rmpn) {
    const auto out = host_.execute<destroy_rmp_in, destroy_rmp_out>(
        Opcode::DESTROY_RMP, connectx::destroy_rmp,
        [&](auto in) { in.set(destroy_rmp_in::rmpn, rmpn); });
    return out ? Status::OK : out.error().status;
  }

  std::uint32_t xrcd_;
};

TEST_F(RdmaSrqCommands, NumbersOfBothKindsNeverCollide) {
  const auto rmp = create_rmp();
  const auto xrc = create_xrc_srq();
  ASSERT_TRUE(rmp);
  ASSERT_TRUE(xrc);
  EXPECT_NE(*rmp, *xrc);
  EXPECT_EQ(destroy_rmp(*xrc), Status::BAD_RESOURCE) << "it is no RMP";
  EXPECT_EQ(destroy_rmp(*rmp), Status::OK);
  EXPECT_EQ(destroy_rmp(*rmp), Status::BAD_RESOURCE);
}

TEST_F(RdmaSrqCommands, RmpGeometryIsChecked) {
  const auto refused = [&](auto change) { return create_rmp(change).error().status; };
  EXPECT_EQ(refused([](auto q) { q.set(wq::log_wq_stride, 4); }), Status::BAD_PARAM);
  EXPECT_EQ(refused([](auto q) { q.set(wq::log_wq_stride, 10); }), Status::EXCEED_LIM);
  EXPECT_EQ(refused([](auto q) { q.set(wq::log_wq_sz, 16); }), Status::EXCEED_LIM);
  EXPECT_EQ(refused([](auto q) { q.set(wq::log_wq_sz, 8); }), Status::BAD_INPUT_LEN);
  EXPECT_EQ(refused([](auto q) { q.set(wq::pd, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(
      refused([](auto q) { q.set(wq::wq_type, static_cast<std::uint32_t>(wq_type::CYCLIC)); }),
      Status::BAD_PARAM);
}

TEST_F(RdmaSrqCommands, XrcSrqReferencesAreChecked) {
  using X = xrc_srq_context;
  const auto refused = [&](auto change) { return create_xrc_srq(change).error().status; };
  EXPECT_EQ(refused([](auto c) { c.set(X::pd, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(refused([](auto c) { c.set(X::cqn, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(refused([](auto c) { c.set(X::xrcd, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(refused([](auto c) { c.set(X::log_rq_stride, 0); }), Status::BAD_PARAM);
}

TEST_F(RdmaSrqCommands, WhatAnSrqRefersToIsInUse) {
  const auto rmp = *create_rmp();
  EXPECT_TRUE(host_.device.resources().pds().is_used(Pd(host_.pd)));
  EXPECT_EQ(destroy_rmp(rmp), Status::OK);
  EXPECT_FALSE(host_.device.resources().pds().is_used(Pd(host_.pd)));
  ASSERT_TRUE(create_xrc_srq());
  EXPECT_TRUE(host_.device.resources().pds().is_used(Pd(host_.pd)));
  EXPECT_TRUE(host_.device.resources().xrcds().is_used(Xrcd(xrcd_)));
  EXPECT_TRUE(host_.device.completion_queues().find(Cqn(host_.cq.cqn))->in_use());
}

TEST_F(RdmaSrqCommands, AnSrqWithQpsIsNotDestroyed) {
  const auto rmp = *create_rmp();
  auto qp = host_.create_qp({.srqn = rmp});
  EXPECT_EQ(destroy_rmp(rmp), Status::BAD_RES_STATE);
  host_.destroy(qp);
  EXPECT_EQ(destroy_rmp(rmp), Status::OK);
}

TEST_F(RdmaSrqCommands, ArmingAnEmptyQueueTellsTheLimitAtOnce) {
  const auto rmp = *create_rmp();
  ASSERT_EQ(arm_rmp(rmp, rmp_state::RDY, rmp_state::RDY), Status::OK);
  const auto event = host_.poll_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, event_type::SRQ_LIMIT);
  EXPECT_EQ(event->number, rmp);
}

// PRM 12.13.2: "If the current state from the input does not match the existing RMP state, then the
// command fails (return code BAD_RESOURCE_STATE) and the RMP remains unaffected."
TEST_F(RdmaSrqCommands, ModifyRmpComparesTheState) {
  const auto rmp = *create_rmp();
  for (const auto from : {rmp_state::ERR, rmp_state(0), rmp_state(2)}) {
    EXPECT_EQ(arm_rmp(rmp, from, rmp_state::RDY), Status::BAD_RESOURCE_STATE);
  }
  EXPECT_EQ(arm_rmp(rmp, rmp_state::RDY, rmp_state::ERR), Status::BAD_PARAM) << "PRM Table 66";
  EXPECT_FALSE(host_.poll_event()) << "the limit is not armed";
  EXPECT_EQ(arm_rmp(rmp, rmp_state::RDY, rmp_state::RDY), Status::OK);
  EXPECT_TRUE(host_.poll_event());
}

TEST_F(RdmaSrqCommands, AnRmpIsCreatedReady) {
  rmp_state_ = static_cast<std::uint32_t>(rmp_state::ERR);
  EXPECT_EQ(create_rmp().error().status, Status::BAD_PARAM);
}

TEST_F(RdmaSrqCommands, QueryTellsLimitAndState) {
  const auto rmp = *create_rmp();
  const auto out = host_.execute<query_rmp_in, query_rmp_out>(
      Opcode::QUERY_RMP, query_rmp, [&](auto in) { in.set(query_rmp_in::rmpn, rmp); });
  ASSERT_TRUE(out);
  const auto c = util::View<query_rmp_out>(*out).get(query_rmp_out::rmp_context);
  EXPECT_EQ(c.get(rmp_context::state), static_cast<std::uint32_t>(rmp_state::RDY));
  EXPECT_EQ(c.get(rmp_context::wq).get(wq::log_wq_sz), 4u);
  EXPECT_EQ(c.get(rmp_context::wq).get(wq::lwm), 0u);
}

TEST_F(RdmaSrqCommands, SrqsOfIssi0AreRefused) {
  const auto out =
      host_.execute<create_srq_in, create_srq_out>(Opcode::CREATE_SRQ, create_srq, [](auto) {});
  EXPECT_EQ(out.error().status, Status::BAD_OP);
}

// RoCE addresses and multicast -----------------------------------------------------------------

TEST_F(RdmaQpCommands, RoceAddressIsKeptAndDeleted) {
  const auto set = [&](std::uint32_t index, const rdma::Gid& gid, roce_version version) {
    const auto out = host_.execute<set_roce_address_in, set_roce_address_out>(
        Opcode::SET_ROCE_ADDRESS, set_roce_address, [&](auto in) {
          in.set(set_roce_address_in::roce_address_index, index);
          const auto entry = in.sub(set_roce_address_in::roce_address);
          std::ranges::copy(gid.bytes, entry.sub(roce_address::source_l3_address).begin());
          entry.set(roce_address::vlan_valid, 1);
          entry.set(roce_address::vlan_id, 100);
          entry.set(roce_address::roce_version, static_cast<std::uint32_t>(version));
        });
    return out ? Status::OK : out.error().status;
  };
  auto& gids = host_.device.rdma().gids();
  const auto gid = rdma::Gid::from_ipv4(0x0A000001);
  EXPECT_EQ(set(7, gid, roce_version::V2), Status::OK);
  ASSERT_NE(gids.get(7), nullptr);
  EXPECT_EQ(gids.get(7)->gid, gid);
  EXPECT_EQ(gids.get(7)->vlan_id, 100);
  EXPECT_TRUE(gids.get(7)->roce_v2);
  const auto out = host_.execute<query_roce_address_in, query_roce_address_out>(
      Opcode::QUERY_ROCE_ADDRESS, query_roce_address,
      [](auto in) { in.set(query_roce_address_in::roce_address_index, 7); });
  const auto entry =
      util::View<query_roce_address_out>(*out).get(query_roce_address_out::roce_address);
  EXPECT_EQ(entry.get(roce_address::vlan_id), 100u);
  EXPECT_EQ(rdma::Gid::from(entry.get(roce_address::source_l3_address)), gid);

  EXPECT_EQ(set(8, gid, roce_version::V1), Status::OK);
  EXPECT_FALSE(gids.get(8)->roce_v2);
  EXPECT_EQ(set(7, rdma::Gid{}, roce_version::V1), Status::OK);
  EXPECT_EQ(gids.get(7), nullptr) << "all zero deletes";
  EXPECT_EQ(set(256, gid, roce_version::V2), Status::BAD_INDEX);
  EXPECT_EQ(set(7, gid, roce_version(1)), Status::BAD_PARAM);
}

TEST_F(RdmaQpCommands, OnlyDatagramQpsJoinMulticastGroups) {
  const auto attach = [&](const HostQp& qp, std::uint32_t address, bool in_group = true) {
    const auto fill = [&](auto in) {
      in.set(attach_to_mcg_in::qpn, qp.qpn);
      const auto gid = rdma::Gid::from_ipv4(address);
      std::ranges::copy(gid.bytes, in.sub(attach_to_mcg_in::multicast_gid).begin());
    };
    const auto out = in_group ? host_.execute<attach_to_mcg_in, attach_to_mcg_out>(
                                    Opcode::ATTACH_TO_MCG, attach_to_mcg, fill)
                              : host_.execute<attach_to_mcg_in, attach_to_mcg_out>(
                                    Opcode::DETACH_FROM_MCG, detach_from_mcg, fill);
    return out ? Status::OK : out.error().status;
  };
  const auto ud = host_.create_qp({.service = service_type::UD});
  const auto rc = host_.create_qp();
  EXPECT_EQ(attach(rc, 0xEF010101), Status::BAD_PARAM);
  EXPECT_EQ(attach(ud, 0x0A000001), Status::BAD_PARAM) << "not a multicast address";
  EXPECT_EQ(attach(ud, 0xEF010101), Status::OK);
  EXPECT_EQ(attach(ud, 0xEF010101), Status::OK) << "again changes nothing";
  EXPECT_EQ(attach(ud, 0xEF010101, false), Status::OK);
  EXPECT_EQ(attach(ud, 0xEF010101, false), Status::BAD_RESOURCE);
}

}  // namespace
}  // namespace softhca::connectx
