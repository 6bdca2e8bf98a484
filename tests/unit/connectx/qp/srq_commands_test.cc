// Commands of RMPs and XRC SRQs: their checks, and the objects that RMPs and XRC SRQs hold
// (PRM 12.13, mlx5 driver interface 7.6).
#include <gtest/gtest.h>

#include "connectx/base/resources.h"
#include "connectx/qp/qp_command_host.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/srq.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

class RdmaSrqCommands : public RdmaQpCommands {
 protected:
  RdmaSrqCommands() : xrcd_(host_.allocate_xrcd()) {}

  tl::expected<std::uint32_t, Status> create_rmp(
      const std::function<void(util::MutableView<wq>)>& change = {}) {
    const auto ring = host_.allocate(4096);
    const auto record = host_.allocate(8, 64);
    const auto out = host_.call<create_rmp_out, create_rmp_in>(
        Opcode::CREATE_RMP,
        [&](auto in) {
          in.sub(create_rmp_in::rmp_context).set(rmp_context::state, rmp_state_);
          in.sub(create_rmp_in::rmp_context).set(rmp_context::basic_cyclic_rcv_wqe, basic_);
          const auto queue = in.sub(create_rmp_in::rmp_context).sub(rmp_context::wq);
          queue.set(wq::log_wq_sz, 4);
          queue.set(wq::log_wq_stride, 5);
          queue.set(wq::pd, host_.pd);
          queue.set(wq::dbr_addr, record);
          if (change) change(queue);
        },
        host_.page_list(ring, 4096));
    if (!out) return tl::unexpected(out.status());
    return out.as<create_rmp_out>().get(create_rmp_out::rmpn);
  }
  /// MODIFY_RMP with limit_.
  Status arm_rmp(std::uint32_t rmp, rmp_state from, rmp_state to, std::uint64_t mask = 1) {
    const auto out = host_.call<modify_rmp_out, modify_rmp_in>(Opcode::MODIFY_RMP, [&](auto in) {
      in.set(modify_rmp_in::rmpn, rmp);
      in.set(modify_rmp_in::rmp_state, static_cast<std::uint32_t>(from));
      util::store_be64(in.sub(modify_rmp_in::modify_bitmask).bytes().data(), mask);
      const auto context = in.sub(modify_rmp_in::rmp_context);
      context.set(rmp_context::state, static_cast<std::uint32_t>(to));
      context.sub(rmp_context::wq).set(wq::lwm, limit_);
    });
    return out.status();
  }
  std::uint32_t limit_ = 3;
  std::uint32_t rmp_state_ = static_cast<std::uint32_t>(rmp_state::RDY);  ///< for CREATE_RMP
  bool basic_ = false;  ///< CREATE_RMP with basic_cyclic_rcv_wqe
  tl::expected<std::uint32_t, Status> create_xrc_srq(
      const std::function<void(util::MutableView<xrc_srq_context>)>& change = {}) {
    const auto ring = host_.allocate(4096);
    const auto out = host_.call<create_xrc_srq_out, create_xrc_srq_in>(
        Opcode::CREATE_XRC_SRQ,
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
    if (!out) return tl::unexpected(out.status());
    return out.as<create_xrc_srq_out>().get(create_xrc_srq_out::xrc_srqn);
  }
  Status destroy_rmp(std::uint32_t rmpn) {
    const auto out = host_.call<destroy_rmp_out, destroy_rmp_in>(
        Opcode::DESTROY_RMP, [&](auto in) { in.set(destroy_rmp_in::rmpn, rmpn); });
    return out.status();
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
  const auto refused = [&](auto change) { return create_rmp(change).error(); };
  EXPECT_EQ(refused([](auto q) { q.set(wq::log_wq_stride, 4); }), Status::BAD_PARAM);
  EXPECT_EQ(refused([](auto q) { q.set(wq::log_wq_stride, 10); }), Status::EXCEED_LIM);
  EXPECT_EQ(refused([](auto q) { q.set(wq::log_wq_sz, 16); }), Status::EXCEED_LIM);
  EXPECT_EQ(refused([](auto q) { q.set(wq::log_wq_sz, 8); }), Status::BAD_INPUT_LEN);
  EXPECT_EQ(refused([](auto q) { q.set(wq::pd, 999); }), Status::BAD_RESOURCE);
  for (const auto type : {wq_type::LINKED_LIST_STRIDING_RQ, wq_type::CYCLIC_STRIDING_RQ}) {
    EXPECT_EQ(refused([&](auto q) { q.set(wq::wq_type, static_cast<std::uint32_t>(type)); }),
              Status::BAD_PARAM);
  }
}

TEST_F(RdmaSrqCommands, OnlyBasicCyclicWqesHaveRoomIn16Bytes) {
  const auto cyclic = [](auto q) {
    q.set(wq::wq_type, static_cast<std::uint32_t>(wq_type::CYCLIC));
    q.set(wq::log_wq_stride, 4);
  };
  EXPECT_EQ(create_rmp(cyclic).error(), Status::BAD_PARAM) << "the control segment fills it";
  basic_ = true;
  EXPECT_TRUE(create_rmp(cyclic));
  const auto with_signature = [&](auto q) {
    cyclic(q);
    q.set(wq::wq_signature, 1);
  };
  EXPECT_EQ(create_rmp(with_signature).error(), Status::BAD_PARAM);
  const auto list = [](auto q) { q.set(wq::log_wq_stride, 4); };
  EXPECT_EQ(create_rmp(list).error(), Status::BAD_PARAM) << "a list needs its links";
}

TEST_F(RdmaSrqCommands, XrcSrqReferencesAreChecked) {
  using X = xrc_srq_context;
  const auto refused = [&](auto change) { return create_xrc_srq(change).error(); };
  EXPECT_EQ(refused([](auto c) { c.set(X::pd, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(refused([](auto c) { c.set(X::cqn, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(refused([](auto c) { c.set(X::xrcd, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(refused([](auto c) { c.set(X::log_rq_stride, 0); }), Status::BAD_PARAM);
}

TEST_F(RdmaSrqCommands, ObjectsThatAnSrqRefersToAreInUse) {
  host_.pd = host_.allocate_pd();
  const auto rmp = *create_rmp();
  EXPECT_TRUE(host_.device.driver().resources().pds().is_used(Pd(host_.pd)));
  EXPECT_EQ(destroy_rmp(rmp), Status::OK);
  EXPECT_FALSE(host_.device.driver().resources().pds().is_used(Pd(host_.pd)));
  ASSERT_TRUE(create_xrc_srq());
  EXPECT_TRUE(host_.device.driver().resources().pds().is_used(Pd(host_.pd)));
  EXPECT_TRUE(host_.device.driver().resources().xrcds().is_used(Xrcd(xrcd_)));
  EXPECT_TRUE(host_.device.driver().completion_queues().find(Cqn(host_.cq.cqn))->in_use());
}

TEST_F(RdmaSrqCommands, AnSrqWithQpsIsNotDestroyed) {
  const auto rmp = *create_rmp();
  auto qp = host_.create_qp({.srqn = rmp});
  EXPECT_EQ(destroy_rmp(rmp), Status::BAD_RES_STATE);
  host_.destroy(qp);
  EXPECT_EQ(destroy_rmp(rmp), Status::OK);
}

TEST_F(RdmaSrqCommands, ArmingAnEmptyQueueReportsTheLimitImmediately) {
  const auto rmp = *create_rmp();
  ASSERT_EQ(arm_rmp(rmp, rmp_state::RDY, rmp_state::RDY), Status::OK);
  const auto event = host_.poll_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, event_type::SRQ_LIMIT);
  EXPECT_EQ(event->number, rmp);
}

// PRM Table 55: "when WQE count drops below this limit, an event is fired". If the limit is above
// the size, the WQE count is always below it, so the event is posted immediately. The manual names
// no status for such a limit, and mlx5_ib never sets one.
TEST_F(RdmaSrqCommands, ALimitAboveTheSizeIsReachedAtOnce) {
  const auto rmp = *create_rmp();
  limit_ = wq::lwm.kMax;
  ASSERT_EQ(arm_rmp(rmp, rmp_state::RDY, rmp_state::RDY), Status::OK);
  const auto event = host_.poll_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, event_type::SRQ_LIMIT);
  EXPECT_FALSE(host_.poll_event()) << "once";
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

TEST_F(RdmaSrqCommands, UnknownBitsOfModifyRmpAreRefusedAndChangeNothing) {
  const auto rmp = *create_rmp();
  for (const unsigned bit : {1u, 32u, 63u}) {
    EXPECT_EQ(arm_rmp(rmp, rmp_state::RDY, rmp_state::RDY, std::uint64_t{1} << bit | 1),
              Status::BAD_PARAM)
        << bit;
  }
  EXPECT_FALSE(host_.poll_event()) << "the limit is not armed";
  EXPECT_EQ(arm_rmp(rmp, rmp_state::RDY, rmp_state::RDY, 0), Status::OK);
  EXPECT_FALSE(host_.poll_event()) << "the limit is not named";
}

TEST_F(RdmaSrqCommands, AnRmpIsCreatedReady) {
  rmp_state_ = static_cast<std::uint32_t>(rmp_state::ERR);
  EXPECT_EQ(create_rmp().error(), Status::BAD_PARAM);
}

TEST_F(RdmaSrqCommands, QueryReportsLimitAndState) {
  const auto rmp = *create_rmp();
  const auto out = host_.call<query_rmp_out, query_rmp_in>(
      Opcode::QUERY_RMP, [&](auto in) { in.set(query_rmp_in::rmpn, rmp); });
  ASSERT_TRUE(out);
  const auto c = out.as<query_rmp_out>().get(query_rmp_out::rmp_context);
  EXPECT_EQ(c.get(rmp_context::state), static_cast<std::uint32_t>(rmp_state::RDY));
  EXPECT_EQ(c.get(rmp_context::wq).get(wq::log_wq_sz), 4u);
  EXPECT_EQ(c.get(rmp_context::wq).get(wq::lwm), 0u);
}
}  // namespace
}  // namespace softhca::connectx
