// Messages with wrong numbers or addresses, in every state of a connection. Only the peer knows
// both numbers, and a datagram's source can be forged.
#include <gtest/gtest.h>

#include <tuple>

#include "cm/communication.h"

namespace softhca::cm {
namespace {

/// One end of a connection, and what its peer's messages hold.
struct Target {
  Host* host = nullptr;
  Connection* connection = nullptr;
  wire::Gid peer;
};

class ForgedMessages : public Communication, public testing::WithParamInterface<State> {
 protected:
  /// A connection whose end has just entered the state.
  Target reach(State state) {
    auto& active = request(IB_UVERBS_QPT_RC);
    const auto at_client = [&] { return end_of(client_, active, kServer); };
    if (state == State::kReqSent) return at_client();
    deliver();
    auto& passive = *server_.connections.back();
    const auto at_server = [&] { return end_of(server_, passive, kClient); };
    if (state == State::kReqRcvd) return at_server();
    passive.qp.local_qpn = 0x200;
    server_.manager.send_rep(passive, {.responder_resources = 5, .initiator_depth = 3}, now_);
    if (state == State::kRepSent) return at_server();
    deliver();
    if (state == State::kRepRcvd) return at_client();
    EXPECT_TRUE(client_.manager.apply(active, Input::kAccept, now_));
    deliver();
    if (state == State::kEstablished) return at_client();
    EXPECT_TRUE(client_.manager.apply(active, Input::kDisconnect, now_));
    if (state == State::kDreqSent) return at_client();
    deliver();
    if (state == State::kDreqRcvd) return at_server();
    EXPECT_TRUE(server_.manager.apply(passive, Input::kDisconnect, now_));
    return at_server();
  }
  Target end_of(Host& host, Connection& connection, const wire::Gid& peer) {
    wire_.clear();
    return {.host = &host, .connection = &connection, .peer = peer};
  }

  /// How a message differs from that of the peer.
  struct Difference {
    std::uint32_t senders = 0, receivers = 0;  ///< numbers: bits that are wrong
    std::uint32_t qpn = 0;                     ///< of a DREQ
    bool from_another = false;
  };
  Received message(const Target& to, cm_attribute attribute, const Difference& wrong) const {
    const auto& exchange = to.connection->exchange;
    Message<spec::cm_dreq> made(attribute, exchange.transaction);
    auto body = made.body();
    body.set(spec::cm_dreq::local_comm_id, exchange.remote_comm_id ^ wrong.senders);
    body.set(spec::cm_dreq::remote_comm_id, exchange.local_comm_id ^ wrong.receivers);
    if (attribute == cm_attribute::DREQ) {
      body.set(spec::cm_dreq::remote_qpn, to.connection->qp.local_qpn ^ wrong.qpn);
    }
    const auto from = wrong.from_another ? wire::Gid::from_ipv4(198, 18, 0, 9) : to.peer;
    return {{.mad = made.mad(), .from = from, .to = to.connection->local.gid}, 0};
  }

  /// Everything of a connection that a message may change.
  static auto view_of(const Target& target) {
    const auto& one = *target.connection;
    return std::tuple(one.state, one.exchange.remote_comm_id, one.qp.remote_qpn, one.qp.remote_psn,
                      one.qp.qkey, one.exchange.repeated.next, one.exchange.repeated.tries_left,
                      one.exchange.repeated.was_told_to_wait, one.waits_until,
                      target.host->events.size());
  }
  void expect_ignored(const Target& target, cm_attribute attribute, const Difference& wrong) {
    const auto before = view_of(target);
    target.host->manager.receive(message(target, attribute, wrong), now_);
    EXPECT_EQ(view_of(target), before)
        << "attribute " << static_cast<int>(attribute) << ", sender ^ " << wrong.senders
        << ", receiver ^ " << wrong.receivers << ", QPN ^ " << wrong.qpn << ", another address "
        << wrong.from_another;
  }

  static constexpr cm_attribute kAnswers[] = {
      cm_attribute::MRA,  cm_attribute::REJ,  cm_attribute::REP,     cm_attribute::RTU,
      cm_attribute::DREQ, cm_attribute::DREP, cm_attribute::SIDR_REP};
};

INSTANTIATE_TEST_SUITE_P(States, ForgedMessages,
                         testing::Values(State::kReqSent, State::kReqRcvd, State::kRepSent,
                                         State::kRepRcvd, State::kEstablished, State::kDreqSent,
                                         State::kDreqRcvd, State::kTimeWait));

TEST_P(ForgedMessages, ChangeNoConnection) {
  const auto target = reach(GetParam());
  ASSERT_EQ(target.connection->state, GetParam());
  const bool knows_sender = target.connection->exchange.remote_comm_id != 0;
  for (const auto attribute : kAnswers) {
    expect_ignored(target, attribute, {.from_another = true});
    for (unsigned bit = 0; bit != 32; ++bit) {
      const auto wrong = std::uint32_t{1} << bit;
      expect_ignored(target, attribute, {.receivers = wrong});
      if (knows_sender) expect_ignored(target, attribute, {.senders = wrong});
    }
  }
  for (unsigned bit = 0; bit != 24; ++bit) {
    expect_ignored(target, cm_attribute::DREQ, {.qpn = std::uint32_t{1} << bit});
  }
  // An answer for datagrams is none for a connection, and an answer without a number is none.
  expect_ignored(target, cm_attribute::SIDR_REP, {});
  const auto all = target.connection->exchange.local_comm_id;
  for (const auto attribute : kAnswers) expect_ignored(target, attribute, {.receivers = all});
}

// The same messages without a difference: the test above would notice a change.
TEST_P(ForgedMessages, ChangeOneIfNothingIsWrong) {
  unsigned changes = 0;
  for (const auto attribute : kAnswers) {
    client_.connections.clear();
    server_.connections.clear();
    client_.table = {};
    server_.table = {};
    const auto target = reach(GetParam());
    const auto before = view_of(target);
    target.host->manager.receive(message(target, attribute, {}), now_);
    changes += view_of(target) != before ? 1 : 0;
  }
  EXPECT_EQ(changes == 0, GetParam() == State::kTimeWait);
}

}  // namespace
}  // namespace softhca::cm
