// Sets of Q counters, and the QPs that count in them (mlx5 driver interface 7.10,
// DEALLOC_Q_COUNTER, counter_set_id of QP contexts).
#include <gtest/gtest.h>

#include "connectx/base/resources.h"
#include "connectx/qp/data_path.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx::test {
namespace {

using WqeOpcode = spec::connectx::wqe_opcode;
using Bit = spec::connectx::qp_opt_param_bit;

class QCounterUse : public RdmaDataPath {
 protected:
  bool dealloc(CounterSetId set) {
    using In = spec::connectx::dealloc_q_counter_in;
    using Out = spec::connectx::dealloc_q_counter_out;
    return host_
        .call<Out, In>(Opcode::DEALLOC_Q_COUNTER,
                       [&](util::MutableView<In> in) { in.set(In::counter_set_id, set.value()); })
        .ok();
  }
  void count_in(HostQp& qp, CounterSetId set) {
    constexpr auto kMask = 1u << static_cast<unsigned>(Bit::COUNTER_SET_ID);
    EXPECT_TRUE(host_.modify(qp, Opcode::RTS2RTS_QP, kMask,
                             [&](auto c) { c.set(qpc::counter_set_id, set.value()); }));
  }
  /// True if a WRITE from `qp` to its peer succeeds.
  bool writes(HostQp& qp) {
    const auto buffer = host_.allocate(64, 64);
    send(qp, wqe(qp, WqeOpcode::RDMA_WRITE).remote(buffer, kKey).data(buffer, 8, kKey));
    host_.run();
    const auto cqes = completions();
    return cqes.size() == 1 && cqes[0].opcode == CqeOpcode::REQUESTER;
  }
};

// The driver interface refuses nothing here, and drivers rely on that. Without
// rts2rts_qp_counters_set_id they cannot remove a QP from its set before they free the set. Linux
// (counters bound to QPs by "rdma statistic") frees the set all the same.
TEST_F(QCounterUse, ASetMayGoBeforeTheQpsThatCountInIt) {
  auto& resources = host_.device.driver().resources();
  const auto set = *resources.allocate_q_counter();
  auto [a, b] = host_.connected();
  count_in(b, set);
  EXPECT_TRUE(writes(a));
  EXPECT_EQ(resources.q_counter(set)->rx_write_requests, 1u);
  EXPECT_TRUE(dealloc(set));
  EXPECT_EQ(resources.q_counter(set), nullptr);
  EXPECT_TRUE(writes(a)) << "its QPs go on";
  EXPECT_FALSE(dealloc(set)) << "twice";
}

TEST_F(QCounterUse, AnotherSetDoesNotCountForAQpWhoseSetIsGone) {
  auto& resources = host_.device.driver().resources();
  const auto set = *resources.allocate_q_counter();
  auto [a, b] = host_.connected();
  count_in(b, set);
  ASSERT_TRUE(dealloc(set));
  const auto next = *resources.allocate_q_counter();
  EXPECT_NE(next, set);
  EXPECT_TRUE(writes(a));
  EXPECT_EQ(resources.q_counter(next)->rx_write_requests, 0u);
}

// rnr_nak_retry_err counts RNR NAKs after which the request was sent again ("the QP retry limit was
// not exceeded"). The RNR NAK that makes the request fail counts as req_rnr_retries_exceeded.
TEST_F(QCounterUse, ReportsRetriesAndThoseThatWereTooMany) {
  const auto set = *host_.device.driver().resources().allocate_q_counter();
  const auto connect = [&](unsigned retries) {
    auto a = host_.create_qp();
    auto b = host_.create_qp();
    EXPECT_TRUE(host_.to_init(a) && host_.to_init(b));
    EXPECT_TRUE(host_.to_rtr(a, b.qpn) && host_.to_rtr(b, a.qpn));
    EXPECT_TRUE(host_.modify(a, Opcode::RTR2RTS_QP, 0, [&](auto context) {
      context.set(qpc::next_send_psn, 0x1000);
      context.set(qpc::retry_count, retries);
      context.set(qpc::rnr_retry, retries);
      context.sub(qpc::primary_address_path).set(ads::ack_timeout, 1);
    }));
    count_in(a, set);
    return std::pair(a, b);
  };
  const auto buffer = host_.allocate(64, 64);
  const auto fail = [&](HostQp& qp, Syndrome syndrome) {
    send(qp, wqe(qp, WqeOpcode::SEND).data(buffer, 8, RdmaTestHost::kKey));
    host_.run(std::chrono::milliseconds(200));
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].syndrome, syndrome);
  };
  auto [not_ready, receiver] = connect(2);  // it has posted no receive
  fail(not_ready, Syndrome::RNR_RETRY_COUNTER_EXCEEDED);
  auto [alone, gone] = connect(3);
  host_.destroy(gone);
  fail(alone, Syndrome::TRANSPORT_RETRY_COUNTER_EXCEEDED);

  using In = spec::connectx::query_q_counter_in;
  using Out = spec::connectx::query_q_counter_out;
  const auto reply = host_.call<Out, In>(Opcode::QUERY_Q_COUNTER, [&](util::MutableView<In> in) {
    in.set(In::counter_set_id, set.value());
  });
  ASSERT_TRUE(reply) << reply.reason();
  EXPECT_EQ(reply.as<Out>().get(Out::rnr_nak_retry_err), 2u);
  EXPECT_EQ(reply.as<Out>().get(Out::req_rnr_retries_exceeded), 1u);
  EXPECT_EQ(reply.as<Out>().get(Out::req_transport_retries_exceeded), 1u);
  EXPECT_EQ(reply.as<Out>().get(Out::req_cqe_error), 2u);
}

}  // namespace
}  // namespace softhca::connectx::test
