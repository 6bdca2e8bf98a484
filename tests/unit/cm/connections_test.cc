// Connections between two communication managers.
#include <gtest/gtest.h>

#include "cm/communication.h"

namespace softhca::cm {
namespace {

using Kind = Event::Kind;

// Hosts that share an address are told apart by the numbers of their connections.
TEST_F(Communication, NumbersAreOfThePortsBlock) {
  client_.block = 0x07;
  server_.block = 0xfe;
  auto& active = request(IB_UVERBS_QPT_RC);
  EXPECT_EQ(active.exchange.local_comm_id >> 24, 0x07u);
  deliver();
  auto& passive = *server_.connections.front();
  EXPECT_EQ(passive.exchange.local_comm_id >> 24, 0xfeu);
  EXPECT_EQ(passive.exchange.remote_comm_id, active.exchange.local_comm_id);
  server_.manager.send_rep(passive, {}, now_);
  deliver();
  EXPECT_EQ(client_.events, std::vector{Kind::kReply}) << "it is found by its new number";
  auto& another = request(IB_UVERBS_QPT_UD);
  EXPECT_EQ(another.exchange.local_comm_id >> 24, 0x07u);
  EXPECT_NE(another.exchange.local_comm_id, active.exchange.local_comm_id);
}

TEST_F(Communication, IsEstablishedAndReleased) {
  auto& active = request(IB_UVERBS_QPT_RC);
  deliver();
  ASSERT_EQ(server_.connections.size(), 1u);
  auto& passive = *server_.connections.front();
  EXPECT_EQ(passive.qp.remote_qpn, 0x100u);
  EXPECT_EQ(server_.offer.initiator_depth, 3) << "as seen by the server";
  EXPECT_EQ(server_.offer.responder_resources, 5);
  EXPECT_EQ(server_.data, "who");
  passive.qp.local_qpn = 0x200;
  server_.manager.send_rep(passive, {.responder_resources = 5, .initiator_depth = 3}, now_);
  deliver();
  EXPECT_EQ(client_.events, std::vector{Kind::kReply});
  EXPECT_EQ(active.qp.remote_qpn, 0x200u);
  EXPECT_EQ(active.qp.remote_psn, passive.qp.local_psn);
  EXPECT_TRUE(client_.manager.apply(active, Input::kAccept, now_));
  deliver();
  EXPECT_EQ(server_.events, std::vector{Kind::kEstablished});

  EXPECT_TRUE(client_.manager.apply(active, Input::kDisconnect, now_));
  EXPECT_FALSE(client_.manager.apply(active, Input::kDisconnect, now_)) << "once";
  deliver();
  EXPECT_EQ(server_.events.back(), Kind::kDisconnected);
  EXPECT_TRUE(server_.manager.apply(passive, Input::kDisconnect, now_));
  deliver();
  EXPECT_EQ(client_.events.back(), Kind::kDisconnected);
  EXPECT_EQ(active.state, State::kTimeWait);
  wait_for(client_);
  EXPECT_EQ(client_.events.back(), Kind::kTimeWaitOver);
  EXPECT_EQ(active.state, State::kOver);
}

TEST_F(Communication, IsRejectedIfThereIsNoSuchService) {
  (void)request(IB_UVERBS_QPT_RC, kService + 1);
  deliver();
  EXPECT_EQ(client_.events, std::vector{Kind::kRejected});
  EXPECT_EQ(client_.status, number_of(spec::cm_reject_reason::INVALID_SERVICE_ID));
  (void)request(IB_UVERBS_QPT_UD, kService + 1);
  deliver();
  EXPECT_EQ(client_.events.back(), Kind::kServiceRefused);
  EXPECT_EQ(client_.status, kSidrNoService);
}

// IBTA 12.7.27: Max CM Retries.
TEST_F(Communication, IsGivenUpAfterAllRetransmissions) {
  auto& active = request(IB_UVERBS_QPT_RC);
  while (client_.events.empty() && client_.sent < 100) {
    wire_.clear();
    wait_for(client_);
  }
  EXPECT_EQ(client_.events, std::vector{Kind::kUnreachable});
  EXPECT_EQ(client_.sent, 1u + kRepeats);
  EXPECT_EQ(active.state, State::kOver);
  EXPECT_EQ(client_.wakeup.next(), util::kNever);
}

TEST_F(Communication, BeginsOnceHoweverOftenTheRequestArrives) {
  (void)request(IB_UVERBS_QPT_RC);
  const auto message = wire_.front();
  deliver();
  server_.manager.receive(message, now_);
  EXPECT_EQ(server_.connections.size(), 1u);
  EXPECT_EQ(server_.sent, 1u) << "an MRA";
  server_.table.remove(*server_.connections.front());
  server_.manager.receive(message, now_);
  EXPECT_EQ(server_.connections.size(), 2u) << "the first one is no longer known";
}

// IBTA 12.11.
TEST_F(Communication, OfDatagramsNamesTheQpAndItsQkey) {
  auto& active = request(IB_UVERBS_QPT_UD);
  deliver();
  ASSERT_EQ(server_.connections.size(), 1u);
  auto& passive = *server_.connections.front();
  EXPECT_TRUE(is_datagram(passive));
  EXPECT_EQ(server_.data, "who");
  passive.qp.local_qpn = 0x200;
  passive.state = State::kEstablished;
  server_.manager.send_sidr_rep(passive, 0, 0x1234, {});
  wire_.clear();
  wait_for(client_);
  deliver();
  EXPECT_EQ(client_.events, std::vector{Kind::kServiceResolved}) << "the first answer was lost";
  EXPECT_EQ(active.qp.remote_qpn, 0x200u);
  EXPECT_EQ(active.qp.qkey, 0x1234u);
}

}  // namespace
}  // namespace softhca::cm
