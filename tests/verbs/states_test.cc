// States of a queue pair (IBTA 10.3.1, 11.2.4.2 Tables 90 to 92): each legal transition and each
// illegal one, on every device.
#include <array>
#include <optional>

#include "suite.h"

namespace softhca::driver::verbs::test {
namespace {

constexpr std::array kStates = {QpState::kReset,   QpState::kInit,    QpState::kRtr,  QpState::kRts,
                                QpState::kSqError, QpState::kSqDrain, QpState::kError};

class States : public Verbs {
 protected:
  /// Every attribute that a transition can take.
  static QpAttributes everything() {
    return {.access = RemoteAccess{},
            .pkey_index = std::uint16_t{0},
            .port = std::uint8_t{1},
            .qkey = 5u,
            .path = Path{.gid = Gid::from_ipv4(10, 0, 0, 2)},
            .path_mtu = 1024u,
            .timeout = std::uint8_t{10},
            .retry_count = std::uint8_t{1},
            .rnr_retry = std::uint8_t{1},
            .receive_psn = 1u,
            .send_psn = 2u,
            .max_reads = 4u,
            .max_peer_reads = 4u,
            .min_rnr_timer = std::uint8_t{1},
            .destination_qpn = 3u};
  }
  /// The subset of everything() that the transition requires.
  static QpAttributes required(QpType type, QpState from, QpState to) {
    const auto* const transition = spec::infiniband::find_transition(type, from, to);
    auto attributes = everything();
    using spec::infiniband::QpAttribute;
    const auto drop = [&](auto& value, QpAttribute attribute) {
      if (transition == nullptr || !transition->required.has(attribute)) value.reset();
    };
    drop(attributes.access, QpAttribute::kAccessFlags);
    drop(attributes.pkey_index, QpAttribute::kPkeyIndex);
    drop(attributes.port, QpAttribute::kPort);
    drop(attributes.qkey, QpAttribute::kQkey);
    drop(attributes.path, QpAttribute::kAddressVector);
    drop(attributes.path_mtu, QpAttribute::kPathMtu);
    drop(attributes.timeout, QpAttribute::kTimeout);
    drop(attributes.retry_count, QpAttribute::kRetryCount);
    drop(attributes.rnr_retry, QpAttribute::kRnrRetry);
    drop(attributes.receive_psn, QpAttribute::kRqPsn);
    drop(attributes.send_psn, QpAttribute::kSqPsn);
    drop(attributes.max_reads, QpAttribute::kMaxRdAtomic);
    drop(attributes.max_peer_reads, QpAttribute::kMaxDestRdAtomic);
    drop(attributes.min_rnr_timer, QpAttribute::kMinRnrTimer);
    drop(attributes.destination_qpn, QpAttribute::kDestinationQpn);
    attributes.state = to;
    return attributes;
  }
  /// How an RDMA WRITE to b completes. Nothing: it does not.
  std::optional<WorkStatus> write_to_b() {
    const auto piece = a().region.piece(0, 8);
    EXPECT_EQ(a().qp.post_send({.opcode = SendOpcode::kRdmaWrite,
                                .pieces = {&piece, 1},
                                .remote_address = b().region.address(),
                                .rkey = b().region.rkey()}),
              PostStatus::kOk);
    const auto done = wait(a().send_cq);
    return done.size() == 1 ? std::optional(done[0].status) : std::nullopt;
  }
  /// IBTA 10.3.1.7: a send that fails leads an unreliable queue pair from RTS to SQE.
  void fail_a_send(QueuePair& qp) {
    auto piece = a().region.piece(0, 8);
    piece.lkey ^= 0x100;
    AddressForm to;
    if (qp.type() == QpType::kUd) to = must(a().pd.make_address(path_to(describe(b().qp))));
    ASSERT_EQ(qp.post_send({.id = 6,
                            .opcode = SendOpcode::kSend,
                            .pieces = {&piece, 1},
                            .address = qp.type() == QpType::kUd ? &to : nullptr,
                            .remote_qpn = b().qp.number(),
                            .remote_qkey = 5}),
              PostStatus::kOk);
    expect_error(wait(a().send_cq), 6, WorkStatus::kLocalProtection);
    EXPECT_EQ(must(qp.query_state()), QpState::kSqError);
  }
  /// From RESET to `state` on the shortest way; false if none leads there.
  bool bring(QueuePair& qp, QpState state) {
    if (state == QpState::kSqError && qp.type() == QpType::kRc) return false;
    must(qp.to_reset());
    auto at = QpState::kReset;
    const auto go = [&](QpState to) {
      must(qp.modify(required(qp.type(), at, to)));
      at = to;
    };
    if (state == QpState::kReset) return true;
    go(QpState::kInit);
    if (state == QpState::kInit) return true;
    if (state == QpState::kError) {
      go(QpState::kError);
      return true;
    }
    go(QpState::kRtr);
    if (state == QpState::kRtr) return true;
    go(QpState::kRts);
    if (state == QpState::kSqDrain) go(QpState::kSqDrain);
    if (state == QpState::kSqError) fail_a_send(qp);
    return true;
  }
  std::vector<QpType> types() {
    std::vector<QpType> all{QpType::kRc, QpType::kUd};
    if (lab().device(0).attributes().lacks(Feature::kUc) == nullptr) all.push_back(QpType::kUc);
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, States, testing::ValuesIn(all_pairs()), name_of);

TEST_P(States, EachTransitionOfTheTableIsMadeAndEachOtherIsRefused) {
  unsigned made = 0;
  for (const auto type : types()) {
    make_sides({.type = QpType::kRc});
    auto qp = must(
        a().pd.create_qp({.type = type, .send_cq = a().send_cq, .receive_cq = a().receive_cq}));
    for (const auto from : kStates) {
      for (const auto to : kStates) {
        if (!bring(qp, from)) continue;
        auto attributes = required(type, from, to);
        // The queue pair has entered SQE by itself.
        if (from == QpState::kSqError) attributes.current_state = from;
        const auto done = qp.modify(attributes);
        const bool there = spec::infiniband::find_transition(type, from, to) != nullptr;
        EXPECT_EQ(done.has_value(), there)
            << to_string(type) << ": " << to_string(from) << " to " << to_string(to) << ": "
            << (done ? "" : done.error().message);
        EXPECT_EQ(to_string(must(qp.query_state())), to_string(there ? to : from));
        made += there;
      }
    }
  }
  EXPECT_EQ(made, types().size() * 19 + (types().size() - 1) * 3) << "RC has no SQE";
}

TEST_P(States, AMissingAttributeIsNamed) {
  make_sides({});
  auto& qp = a().qp;
  ASSERT_TRUE(bring(qp, QpState::kInit));
  auto attributes = required(QpType::kRc, QpState::kInit, QpState::kRtr);
  attributes.path_mtu.reset();
  attributes.destination_qpn.reset();
  const auto refused = qp.modify(attributes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "INIT to RTR of RC: missing: path MTU, destination QPN (IBTA 11.2.4.2)");
}

TEST_P(States, AnAttributeOutOfPlaceIsNamed) {
  make_sides({});
  ASSERT_TRUE(bring(a().qp, QpState::kReset));
  auto attributes = required(QpType::kRc, QpState::kReset, QpState::kInit);
  attributes.retry_count = std::uint8_t{7};
  attributes.qkey = 1u;
  const auto refused = a().qp.modify(attributes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "RESET to INIT of RC: not to be given: Q_Key, retry count (IBTA 11.2.4.2)");
}

TEST_P(States, ValuesThatDoNotExistAreRefused) {
  make_sides({});
  auto& qp = a().qp;
  ASSERT_TRUE(bring(qp, QpState::kInit));
  const auto with = [&](auto member, auto value) {
    auto attributes = required(QpType::kRc, QpState::kInit, QpState::kRtr);
    attributes.*member = value;
    return qp.modify(attributes).has_value();
  };
  EXPECT_FALSE(with(&QpAttributes::path_mtu, 1500u));
  EXPECT_FALSE(with(&QpAttributes::path_mtu, 0u));
  EXPECT_FALSE(with(&QpAttributes::min_rnr_timer, std::uint8_t{32}));
  EXPECT_FALSE(with(&QpAttributes::receive_psn, 0x1000000u));
  EXPECT_FALSE(with(&QpAttributes::destination_qpn, 0x1000000u));
  EXPECT_TRUE(with(&QpAttributes::path_mtu, 256u)) << "a refused command has changed nothing";
}

// IBTA 10.3.1.3: in RTR, the peer's requests are accepted.
TEST_P(States, InRtrAQueuePairReceives) {
  make_sides({});
  const auto end_a = describe(a().qp), end_b = describe(b().qp);
  must(connect(a().qp, end_b));
  must(to_init(b().qp));
  must(to_rtr(b().qp, end_a));
  b().receive(1, 0, 64);
  ASSERT_EQ(a().send(SendOpcode::kSend, 8), PostStatus::kOk);
  expect_success(wait(b().receive_cq), 1, CompletionOpcode::kReceive);
  a().receive(2, 0, 64);
  must(to_rts(b().qp, end_a));
  ASSERT_EQ(b().send(SendOpcode::kSend, 8, 5), PostStatus::kOk);
  expect_success(wait(b().send_cq), 5, CompletionOpcode::kSend);
}

// Attributes that may change while it runs: access flags (Table 91, RTS to RTS). Table 91 also
// lists the optional attributes of a transition.
TEST_P(States, ARightThatIsGivenOnTheWayCounts) {
  make_sides({});
  const auto here = describe(b().qp);
  must(to_init(b().qp, {.access = {.read = false, .write = false, .atomic = false}}));
  must(to_rtr(b().qp, describe(a().qp)));
  must(b().qp.modify({.state = QpState::kRts,
                      .access = RemoteAccess{},
                      .timeout = std::uint8_t{14},
                      .retry_count = std::uint8_t{7},
                      .rnr_retry = std::uint8_t{7},
                      .send_psn = here.psn,
                      .max_reads = 4u}));
  must(b().qp.modify({.state = QpState::kRts, .min_rnr_timer = std::uint8_t{1}}));
  must(connect(a().qp, here));
  EXPECT_EQ(write_to_b(), WorkStatus::kSuccess);
}

TEST_P(States, ARunningOrDrainedQueuePairCanTakeARightBack) {
  for (const auto state : {QpState::kRts, QpState::kSqDrain}) {
    connect_sides();
    if (state == QpState::kSqDrain) must(b().qp.modify({.state = state}));
    must(b().qp.modify(
        {.state = state, .access = RemoteAccess{.read = true, .write = false, .atomic = false}}));
    const auto status = write_to_b();
    ASSERT_TRUE(status);
    EXPECT_NE(status, WorkStatus::kSuccess) << to_string(state);
  }
}

}  // namespace
}  // namespace softhca::driver::verbs::test
