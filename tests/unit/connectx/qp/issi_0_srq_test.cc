// SRQs of drivers that only support ISSI 0 (mlx5 driver interface 7.6): CREATE_SRQ, DESTROY_SRQ,
// QUERY_SRQ, ARM_RQ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "connectx/qp/data_path.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/srq.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using namespace spec::connectx;
using test::EventType;
using test::HostQp;
using test::RdmaDataPath;
using test::RdmaTestHost;
using Command_ = command_opcode;
using Status = command_status;
using Wqe = wqe_opcode;

class RdmaIssi0Srq : public RdmaDataPath {
 protected:
  static constexpr unsigned kCount = 8;
  using Context = srq_context;
  using Fill = std::function<void(util::MutableView<Context>)>;

  RdmaIssi0Srq() {
    ring_ = host_.allocate(4096);
    record_ = host_.allocate(8, 64);
    buffers_ = host_.allocate(4096);
    for (unsigned i = 0; i < kCount; ++i) {
      auto* wqe = host_.at(ring_ + 64 * i);
      util::store_be32(wqe, (i + 1) % kCount);
      util::store_be32(wqe + 16, 64);
      util::store_be32(wqe + 20, RdmaTestHost::kKey);
      util::store_be64(wqe + 24, buffers_ + 64 * i);
      util::store_be32(wqe + 36, 0x100);
    }
  }
  Reply try_create(const Fill& change = {}) {
    return host_.call<create_srq_out, create_srq_in>(
        Command_::CREATE_SRQ,
        [&](auto in) {
          const auto context = in.sub(create_srq_in::srq_context_entry);
          context.set(Context::log_rq_stride, 2);
          context.set(Context::log_srq_size, 3);
          context.set(Context::pd, host_.pd);
          context.set(Context::dbr_addr, record_);
          if (change) change(context);
        },
        host_.page_list(ring_, 4096));
  }
  std::uint32_t create(const Fill& change = {}) {
    const auto reply = try_create(change);
    EXPECT_TRUE(reply) << reply.reason();
    return reply.as<create_srq_out>().get(create_srq_out::srqn);
  }
  Status destroy(std::uint32_t srqn) {
    return host_
        .call<destroy_srq_out, destroy_srq_in>(Command_::DESTROY_SRQ,
                                               [&](auto in) { in.set(destroy_srq_in::srqn, srqn); })
        .status();
  }
  Status arm(std::uint32_t srqn, std::uint32_t limit, std::uint16_t op_mod = 1) {
    return host_
        .call<arm_rq_out, arm_rq_in>(
            Command_::ARM_RQ,
            [&](auto in) {
              in.set(arm_rq_in::srq_number, srqn);
              in.set(arm_rq_in::lwm, limit);
            },
            {}, op_mod)
        .status();
  }
  Reply query(std::uint32_t srqn) {
    return host_.call<query_srq_out, query_srq_in>(
        Command_::QUERY_SRQ, [&](auto in) { in.set(query_srq_in::srqn, srqn); }, {}, 0, 8);
  }
  void post(std::uint32_t producer) { util::store_be32(host_.at(record_), producer); }

  pcie::Iova ring_ = 0;
  pcie::Iova record_ = 0;
  pcie::Iova buffers_ = 0;
};

TEST_F(RdmaIssi0Srq, QpsTakeTheirReceivesFromIt) {
  const auto srqn = create();
  auto [a, b] = host_.connected({.srqn = srqn});
  EXPECT_EQ(destroy(srqn), Status::BAD_RES_STATE) << "QPs use it";
  post(2);
  for (const auto* text : {"first", "second"}) {
    send(a, wqe(a, Wqe::SEND).unsignaled().inline_data(text));
  }
  host_.run();
  const auto received = completions();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[1].wqe_counter, 1u);
  EXPECT_EQ(received[1].user_index, srqn) << "version 0: drivers look for the SRQ";
  EXPECT_EQ(host_.text(buffers_ + 64, 6), "second");
  host_.destroy(a);
  host_.destroy(b);
  EXPECT_EQ(destroy(srqn), Status::OK);
  EXPECT_EQ(destroy(srqn), Status::BAD_RESOURCE);
}

TEST_F(RdmaIssi0Srq, ReportsOnceWhenFewWqesAreLeft) {
  const auto srqn = create();
  auto [a, b] = host_.connected({.srqn = srqn});
  host_.run();
  (void)events();
  post(3);
  EXPECT_EQ(arm(srqn, 2, 0), Status::BAD_OP) << "op_mod of an RQ";
  EXPECT_EQ(arm(srqn, 2), Status::OK);
  for (int i = 0; i != 2; ++i) {
    send(a, wqe(a, Wqe::SEND).unsignaled().inline_data("x"));
    host_.run();
  }
  const auto told = host_.poll_event();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->number, srqn);
  EXPECT_FALSE(host_.poll_event());
}

TEST_F(RdmaIssi0Srq, ReportsItsContextAndPages) {
  const auto srqn = create([](auto context) { context.set(Context::lwm, 0); });
  const auto reply = query(srqn);
  ASSERT_TRUE(reply) << reply.reason();
  const auto context = reply.as<query_srq_out>().get(query_srq_out::srq_context_entry);
  EXPECT_EQ(context.get(Context::state), static_cast<std::uint32_t>(srq_state::GOOD));
  EXPECT_EQ(context.get(Context::log_srq_size), 3u);
  EXPECT_EQ(context.get(Context::pd), host_.pd);
  EXPECT_EQ(util::load_be64(reply.out.data() + query_srq_out::pas_offset), ring_);
  EXPECT_EQ(query(srqn + 1).status(), Status::BAD_RESOURCE);
}

TEST_F(RdmaIssi0Srq, IsNeitherAnRmpNorAnXrcSrq) {
  const auto srqn = create();
  const auto rmpn = host_.create_rmp(3).rmpn;
  EXPECT_NE(srqn, rmpn);
  EXPECT_EQ(destroy(rmpn), Status::BAD_RESOURCE);
  EXPECT_EQ((host_.call<destroy_rmp_out, destroy_rmp_in>(
                 Command_::DESTROY_RMP, [&](auto in) { in.set(destroy_rmp_in::rmpn, srqn); }))
                .status(),
            Status::BAD_RESOURCE);
  EXPECT_EQ(
      (host_.call<destroy_xrc_srq_out, destroy_xrc_srq_in>(
           Command_::DESTROY_XRC_SRQ, [&](auto in) { in.set(destroy_xrc_srq_in::xrc_srqn, srqn); }))
          .status(),
      Status::BAD_RESOURCE);
}

TEST_F(RdmaIssi0Srq, ObjectsThatItRefersToMustExistAndFit) {
  const auto status = [&](auto field, std::uint32_t value) {
    return try_create([&](auto context) { context.set(field, value); }).status();
  };
  EXPECT_EQ(status(Context::pd, 999), Status::BAD_RESOURCE);
  EXPECT_EQ(status(Context::cqn, 999), Status::BAD_RESOURCE);
  EXPECT_EQ(status(Context::xrcd, 999), Status::BAD_RESOURCE);
  EXPECT_EQ(status(Context::log_rq_stride, 0), Status::BAD_PARAM);
  EXPECT_EQ(status(Context::log_rq_stride, 6), Status::EXCEED_LIM);
  EXPECT_EQ(status(Context::log_srq_size, 8), Status::BAD_INPUT_LEN) << "more pages";
}

// mlx5_ib gives each SRQ of ISSI 0 a domain and a CQ, also those that serve no XRC.
TEST_F(RdmaIssi0Srq, ServesQpsThoughItHasADomainAndACq) {
  const auto domain = host_.allocate_xrcd();
  auto srq_cq = host_.create_cq(4);
  const auto srqn = create([&](auto context) {
    context.set(Context::xrcd, domain);
    context.set(Context::cqn, srq_cq.cqn);
  });
  auto [a, b] = host_.connected({.srqn = srqn});
  post(1);
  send(a, wqe(a, Wqe::SEND).unsignaled().inline_data("first"));
  host_.run();
  const auto received = completions();
  ASSERT_EQ(received.size(), 1u) << "in the CQ of the QP";
  EXPECT_EQ(received[0].qpn, b.qpn);
  EXPECT_TRUE(host_.poll_all(srq_cq).empty());
  EXPECT_EQ(host_.text(buffers_, 5), "first");
  EXPECT_EQ(destroy(srqn), Status::BAD_RES_STATE) << "QPs use it";
}

// Drivers of ISSI 0 make their XRC SRQs with the same command.
TEST_F(RdmaIssi0Srq, ServesXrcIfItHasADomainAndACq) {
  const auto domain = host_.allocate_xrcd();
  auto srq_cq = host_.create_cq(4);
  const auto srqn = create([&](auto context) {
    context.set(Context::xrcd, domain);
    context.set(Context::cqn, srq_cq.cqn);
  });
  auto initiator = host_.create_qp({.service = test::Service::XRC, .srqn = srqn});
  auto target = host_.allocate_qp({.service = test::Service::XRC, .srqn = srqn});
  const auto made = host_.call<create_qp_out, create_qp_in>(
      Command_::CREATE_QP,
      [&](auto in) {
        host_.fill_create(in, target);
        in.sub(create_qp_in::qpc).set(qpc::no_sq, 1);
        in.sub(create_qp_in::qpc).set(qpc::xrcd, domain);
      },
      host_.page_list(target.ring, 4096));
  ASSERT_TRUE(made) << made.reason();
  target.qpn = made.as<create_qp_out>().get(create_qp_out::qpn);
  for (auto [qp, peer] : {std::pair{&initiator, &target}, {&target, &initiator}}) {
    EXPECT_TRUE(host_.to_init(*qp) && host_.to_rtr(*qp, peer->qpn) && host_.to_rts(*qp));
  }
  post(1);
  send(initiator, wqe(initiator, Wqe::SEND).xrc(srqn).inline_data("by XRC"));
  host_.run();
  const auto received = host_.poll_all(srq_cq);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].user_index, srqn);
  EXPECT_EQ(host_.text(buffers_, 6), "by XRC");
  EXPECT_EQ(destroy(srqn), Status::OK) << "XRC names it by its number alone";
}

}  // namespace
}  // namespace softhca::connectx
