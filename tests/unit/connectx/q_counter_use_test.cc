// Sets of Q counters and the QPs that count in them (mlx5 driver interface: ALLOC_Q_COUNTER,
// DEALLOC_Q_COUNTER, counter_set_id of QP contexts).
#include <gtest/gtest.h>

#include "connectx/base/resources.h"
#include "connectx/rdma_data_path.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx::testing {
namespace {

using Wqe = spec::connectx::wqe_opcode;
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
  /// Whether a WRITE from `qp` to its peer succeeds.
  bool writes(HostQp& qp) {
    const auto buffer = host_.allocate(64, 64);
    constexpr auto kKey = RdmaTestHost::kKey;
    send(qp, wqe(qp, Wqe::RDMA_WRITE).remote(buffer, kKey).data(buffer, 8, kKey));
    host_.run();
    const auto cqes = completions();
    return cqes.size() == 1 && cqes[0].opcode == CqeOpcode::REQUESTER;
  }
};

// The driver interface refuses nothing here, and drivers need it so: without
// rts2rts_qp_counters_set_id they cannot take a QP from its set before they free the set, and Linux
// (counters bound to QPs by "rdma statistic") frees it all the same.
TEST_F(QCounterUse, ASetMayGoBeforeTheQpsThatCountInIt) {
  auto& resources = host_.device.resources();
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
  auto& resources = host_.device.resources();
  const auto set = *resources.allocate_q_counter();
  auto [a, b] = host_.connected();
  count_in(b, set);
  ASSERT_TRUE(dealloc(set));
  const auto next = *resources.allocate_q_counter();
  EXPECT_NE(next, set);
  EXPECT_TRUE(writes(a));
  EXPECT_EQ(resources.q_counter(next)->rx_write_requests, 0u);
}

}  // namespace
}  // namespace softhca::connectx::testing
