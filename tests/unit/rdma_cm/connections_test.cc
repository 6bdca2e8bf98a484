// The life of a connection to another host, whose communication manager is Linux or anything else.
#include <gtest/gtest.h>

#include "rdma_cm/guest_on_wire.h"

namespace softhca::rdma_cm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// cma.c of Linux: 15 retries, each after 2^20 * 4.096 us plus twice the packet lifetime.
TEST_F(RdmaCmWithGuest, ARequestIsRepeatedAsLinuxDoes) {
  ask_guest();
  now_ += milliseconds(4600);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(count(cm_attribute::REQ), 1u);
  for (unsigned times = 2; times != 17; ++times) {
    now_ += milliseconds(4608 * 9 / 8 + 1);
    EXPECT_TRUE(is_quiet());
    EXPECT_EQ(count(cm_attribute::REQ), times);
  }
  now_ += milliseconds(4608 * 9 / 8 + 1);
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kUnreachable));
  EXPECT_EQ(status_of(event), -ETIMEDOUT);
  EXPECT_EQ(count(cm_attribute::REQ), 16u);
}

// A listener that accepts one request at a time must get all of them in the end.
TEST_F(RdmaCmWithGuest, RequestsOfManyAreNotRepeatedInOneMoment) {
  for (std::uint64_t uid = 2; uid != 22; ++uid) ask_guest(uid);
  std::size_t most = 0, before = count(cm_attribute::REQ);
  ASSERT_EQ(before, 20u);
  now_ += milliseconds(4608);
  for (unsigned passed = 0; passed <= 4608 / 8; ++passed) {
    now_ += milliseconds(1);
    manager_->tick(now_);
    work();
    most = std::max(most, count(cm_attribute::REQ) - before);
    before = count(cm_attribute::REQ);
  }
  EXPECT_EQ(before, 40u);
  EXPECT_LE(most, 5u);
}

TEST_F(RdmaCmWithGuest, AReplyIsRepeatedAndGivenUp) {
  const auto server = be_asked_by_guest();
  ASSERT_EQ(accept(server, 3, false), 0);
  for (unsigned times = 0; times != 17; ++times) {
    work();
    now_ += milliseconds(4096 * 9 / 8 + 1);
  }
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kUnreachable));
  EXPECT_EQ(count(cm_attribute::REP), 16u);
}

// Linux sets a flag for this (CMA_CM_MRA_SETTING): only a repeated request is answered with MRA.
TEST_F(RdmaCmWithGuest, ARequestThatComesAgainIsAnsweredWithAWait) {
  be_asked_by_guest();
  work();
  EXPECT_EQ(count(cm_attribute::MRA), 0u);
  say(request());
  EXPECT_EQ(count(cm_attribute::MRA), 1u);
  EXPECT_TRUE(is_quiet()) << "it is one request";
}

// Linux's cma_ib_check_req_qp_type(). The second request of a refused identifier would otherwise
// find freed memory.
TEST_F(RdmaCmWithGuest, ARequestOfTheOtherKindIsRefused) {
  listen(1, 7471, RDMA_PS_UDP);
  listen(2, 7472, RDMA_PS_TCP);
  const auto to = [](std::uint16_t space, std::uint16_t port, std::uint32_t transport = 0) {
    return request([=](auto body) {
      body.set(spec::cm_req::service_id, service_of(space, port));
      body.set(spec::cm_req::transport, transport);
    });
  };
  for (const auto& asks : {to(RDMA_PS_UDP, 7471), to(RDMA_PS_TCP, 7472, kTransportUc)}) {
    ear_.heard.clear();
    say(asks);
    say(asks);
    EXPECT_EQ(count(cm_attribute::REJ), 2u);
    EXPECT_EQ(body_of<spec::cm_rej>(last(cm_attribute::REJ)).get(spec::cm_rej::reason), 28u);
    EXPECT_TRUE(is_quiet());
  }
  using Req = spec::cm_sidr_req;
  Message<Req> asks(cm_attribute::SIDR_REQ, 1);
  asks.body().set(Req::request_id, kGuestsId);
  asks.body().set(Req::service_id, service_of(RDMA_PS_TCP, 7472));
  util::MutableView<spec::cma_header> cma(asks.body().sub(Req::private_data).first(kCmaHeader));
  cma.set(spec::cma_header::ip_version, 4);
  std::ranges::copy(kOwn.bytes, cma.sub(spec::cma_header::destination).begin());
  say(asks.mad());
  say(asks.mad());
  EXPECT_EQ(count(cm_attribute::SIDR_REP), 2u);
  EXPECT_EQ(body_of<spec::cm_sidr_rep>(last(cm_attribute::SIDR_REP)).get(spec::cm_sidr_rep::status),
            kSidrRejected);
  EXPECT_TRUE(is_quiet());
}

// As on Linux (cm_mra_handler), only the first MRA counts.
TEST_F(RdmaCmWithGuest, APeerCannotPutAClientOffForEver) {
  using Mra = spec::cm_mra;
  ask_guest();
  const auto later = message<Mra>(cm_attribute::MRA, kGuestsId, number_in(last(cm_attribute::REQ)),
                                  [](auto body) { body.set(Mra::service_timeout, 25); });
  for (int i = 0; i != 600; ++i) {
    now_ += seconds(1);
    say(later);
  }
  EXPECT_GT(count(cm_attribute::REQ), 1u);
  EXPECT_LT(count(cm_attribute::REQ), 7u) << "each transmission may be put off once";
}

// rdma_accept(3): each end states how often the other retries. ib_send_cm_rep() of Linux keeps the
// number of the REQ.
TEST_F(RdmaCmWithGuest, TheRnrRetryCountIsThatOfTheOtherEnd) {
  listen(1, 7471);
  say(request([](auto body) { body.set(spec::cm_req::rnr_retry, 5); }));
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_EQ(request.param.conn.rnr_retry_count, 5u);
  rdma_ucm_accept in{};
  in.uid = 3;
  in.id = request.id;
  in.conn_param = param(0x200, "");
  in.conn_param.rnr_retry_count = 200;
  ASSERT_EQ(command(RDMA_USER_CM_CMD_ACCEPT, in), 0);
  work();
  const auto mad = last(cm_attribute::REP);
  EXPECT_EQ(body_of<spec::cm_rep>(mad).get(spec::cm_rep::rnr_retry), 7u) << "the largest";
  ib_uverbs_qp_attr attributes{};
  const rdma_ucm_init_qp_attr to_rts{
      .response = reinterpret_cast<std::uint64_t>(&attributes), .id = request.id, .qp_state = 3};
  ASSERT_EQ(command(RDMA_USER_CM_CMD_INIT_QP_ATTR, to_rts), 0);
  EXPECT_EQ(attributes.rnr_retry, 5u);
}

// REJ with reason 4 (IBTA 12.6.7.2): the client has given up, and does not know the server's
// communication ID.
TEST_F(RdmaCmWithGuest, ARequestThatWasGivenUpIsNotAccepted) {
  const auto server = be_asked_by_guest();
  const auto give_up = message<spec::cm_rej>(cm_attribute::REJ, kGuestsId, 0, [](auto body) {
    body.set(spec::cm_rej::message, 2);
    body.set(spec::cm_rej::reason, number_of(spec::cm_reject_reason::TIMEOUT));
  });
  say(give_up, kStranger);
  say(give_up);
  EXPECT_EQ(accept(server, 3, false), EINVAL);
  rdma_ucm_reject reject{};
  reject.id = server;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_REJECT, reject), EINVAL);
  EXPECT_TRUE(is_quiet());
}

TEST_F(RdmaCmWithGuest, AClientThatGoesGivesItsRequestUp) {
  destroy(ask_guest());
  work();
  const auto& mad = last(cm_attribute::REJ);
  const auto rej = body_of<spec::cm_rej>(mad);
  EXPECT_EQ(rej.get(spec::cm_rej::reason), 4u);
  EXPECT_EQ(rej.get(spec::cm_rej::local_comm_id), number_in(last(cm_attribute::REQ)));
  EXPECT_EQ(rej.get(spec::cm_rej::info_length), 8u);
}

// As ib_send_cm_rej() of Linux. The REJ names no other end yet, so the server gets no event.
TEST_F(RdmaCmWithGuest, AClientMayRejectItsOwnRequest) {
  const auto client = ask_guest();
  rdma_ucm_reject reject{};
  reject.id = client;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_REJECT, reject), 0);
  work();
  EXPECT_EQ(body_of<spec::cm_rej>(last(cm_attribute::REJ)).get(spec::cm_rej::remote_comm_id), 0u);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_REJECT, reject), EINVAL) << "once";
  now_ += milliseconds(4608 * 9 / 8 + 1);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(count(cm_attribute::REQ), 1u) << "it is not repeated";
}

TEST_F(RdmaCm, AClientThatGoesIsNotAccepted) {
  listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto request = next();
  destroy(client);
  work();
  EXPECT_EQ(accept(request.id, 3, false), EINVAL);
}

// rdma_accept() of Linux rejects the peer after any error.
TEST_F(RdmaCmWithGuest, AcceptingAtTheWrongTimeRejectsThePeer) {
  const auto server = be_asked_by_guest();
  ASSERT_EQ(accept(server, 3, false), 0);
  work();
  EXPECT_EQ(count(cm_attribute::REP), 1u);
  EXPECT_EQ(accept(server, 3, false), EINVAL) << "it has accepted";
  work();
  EXPECT_EQ(body_of<spec::cm_rej>(last(cm_attribute::REJ)).get(spec::cm_rej::reason), 28u);
  now_ += seconds(10);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(count(cm_attribute::REP), 1u) << "it is not repeated";

  EXPECT_EQ(accept(ask_guest(), 2, true), EINVAL) << "the guest has not replied";
  work();
  EXPECT_EQ(count(cm_attribute::REJ), 2u);

  const auto connected = connect_to_guest();
  EXPECT_EQ(accept(connected, 2, true), EINVAL);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(count(cm_attribute::REJ), 2u) << "the connection goes on";
  EXPECT_EQ(disconnect(connected), 0);
  work();
  EXPECT_EQ(count(cm_attribute::DREQ), 1u);
}

// Any host or guest can send: a third host must not speak for the other end.
TEST_F(RdmaCmWithGuest, OnlyTheOtherEndSpeaksOfAConnection) {
  const auto client = ask_guest();
  const auto number = number_in(last(cm_attribute::REQ));
  const auto reject = message<spec::cm_rej>(cm_attribute::REJ, 0, number);
  const auto later = message<spec::cm_mra>(cm_attribute::MRA, kGuestsId, number);
  for (const auto& mad : {reject, reply(number), later}) say(mad, kStranger);
  EXPECT_TRUE(is_quiet());
  say(reply(number));
  ASSERT_EQ(next_type(), EventType::kConnectResponse);
  ASSERT_EQ(accept(client, 2, true), 0);
  const auto disconnect_of = [&](std::uint32_t guests_id) {
    return message<spec::cm_dreq>(cm_attribute::DREQ, guests_id, number,
                                  [](auto body) { body.set(spec::cm_dreq::remote_qpn, 0x100); });
  };
  say(disconnect_of(kGuestsId), kStranger);
  say(disconnect_of(kGuestsId + 1));
  EXPECT_TRUE(is_quiet()) << "another connection of the guest's";
  EXPECT_EQ(disconnect(client), 0);
  say(message<spec::cm_rtu>(cm_attribute::DREP, kGuestsId, number), kStranger);
  EXPECT_TRUE(is_quiet());
  say(message<spec::cm_rtu>(cm_attribute::DREP, kGuestsId, number));
  EXPECT_EQ(next_type(), EventType::kDisconnected);
}

TEST_F(RdmaCmWithGuest, OnlyTheOtherEndSaysThatItIsReady) {
  const auto server = be_asked_by_guest();
  ASSERT_EQ(accept(server, 3, false), 0);
  work();
  const auto ready =
      message<spec::cm_rtu>(cm_attribute::RTU, kGuestsId, number_in(last(cm_attribute::REP)));
  say(ready, kStranger);
  EXPECT_TRUE(is_quiet());
  say(ready);
  EXPECT_EQ(next_type(), EventType::kEstablished);
}

TEST_F(RdmaCmWithGuest, OnlyTheOtherEndGivesItsQpOfDatagrams) {
  ask_guest(2, RDMA_PS_UDP);
  using Rep = spec::cm_sidr_rep;
  Message<Rep> rep(cm_attribute::SIDR_REP, 1);
  rep.body().set(Rep::request_id, number_in(last(cm_attribute::SIDR_REQ)));
  rep.body().set(Rep::qkey, kDefaultQkey);
  say(rep.mad(), kStranger);
  EXPECT_TRUE(is_quiet());
  say(rep.mad());
  EXPECT_EQ(next_type(), EventType::kEstablished);
}

TEST_F(RdmaCmWithGuest, NumbersOfConnectionsCannotBeGuessed) {
  std::set<std::uint32_t> apart;
  std::uint32_t before = 0;
  for (std::uint64_t uid = 2; uid != 10; ++uid) {
    ask_guest(uid);
    const auto number = number_in(last(cm_attribute::REQ));
    apart.insert(number - before);
    apart.insert(number ^ before);
    before = number;
  }
  EXPECT_EQ(apart.size(), 15u) << "the first one is both";
}

TEST_F(RdmaCmWithGuest, AReplyComesFromTheAddressThatWasAsked) {
  const auto other = driver::Gid::from_ipv4(198, 18, 0, 77);
  ASSERT_TRUE(program_.device().set_gid(0, uverbs::GidEntry{.gid = other}));
  ASSERT_TRUE(program_.device().set_gid(5, uverbs::GidEntry{.gid = kOwn}));
  const auto server = be_asked_by_guest();
  ib_uverbs_qp_attr attributes{};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_INIT_QP_ATTR,
                    rdma_ucm_init_qp_attr{.response = reinterpret_cast<std::uint64_t>(&attributes),
                                          .id = server,
                                          .qp_state = 2}),
            0);
  EXPECT_EQ(attributes.ah_attr.grh.sgid_index, 5);
}

// QP1 is a UD QP: a send that fails stops all later ones (IBTA 10.3.1.6). The source and the
// destination of a RoCE v1 frame may differ in IP version, and then no answer can be sent.
TEST_F(RdmaCmWithGuest, AMessageFromAGroupEndsNoConnectionManagement) {
  const auto unknown = message<spec::cm_dreq>(cm_attribute::DREQ, kGuestsId, 12345);
  driver::Gid group;
  group.bytes[0] = std::byte{0xff};
  group.bytes[1] = group.bytes[15] = std::byte{2};
  say(unknown, group, wire::Encapsulation::kRoceV1);
  say(unknown, driver::Gid::from_ipv4(224, 0, 0, 1));
  EXPECT_EQ(count(cm_attribute::DREP), 0u);
  group.bytes[0] = std::byte{0xfd};
  say(unknown, group, wire::Encapsulation::kRoceV1);
  EXPECT_EQ(count(cm_attribute::DREP), 0u) << "of another IP version";
  say(unknown);
  EXPECT_EQ(count(cm_attribute::DREP), 1u);
}

TEST_F(RdmaCmWithGuest, ARequestWaitsForAnAddressThatReturns) {
  const auto client = create(2);
  resolve_guest(client);
  ASSERT_TRUE(program_.device().set_gid(0, std::nullopt));
  connect(client, "");
  work();
  EXPECT_EQ(count(cm_attribute::REQ), 0u);
  ASSERT_TRUE(program_.device().set_gid(0, uverbs::GidEntry{.gid = kOwn}));
  now_ += milliseconds(300);
  work();
  EXPECT_EQ(count(cm_attribute::REQ), 1u) << "it was not tried without a source";
}

// The device has lost the GID entry that an identifier still sends from.
TEST_F(RdmaCmWithGuest, AnAddressThatGoesEndsNoOtherConnections) {
  const auto other = driver::Gid::from_ipv4(198, 18, 0, 77);
  ASSERT_TRUE(program_.device().set_gid(1, uverbs::GidEntry{.gid = other}));
  auto& hca = program_.device().hca();
  ASSERT_TRUE(hca.clear_roce_address(0));
  ask_guest();
  EXPECT_EQ(count(cm_attribute::REQ), 0u);
  ASSERT_TRUE(hca.set_roce_address(0, {.gid = kOwn, .mac = hca.mac()}));
  ask_guest(3);
  EXPECT_EQ(count(cm_attribute::REQ), 1u);
}

// Same fields as cma_set_rep_event_data() of Linux, and no others.
TEST_F(RdmaCmWithGuest, EventsSayWhatLinuxSays) {
  ask_guest();
  say(reply(number_in(last(cm_attribute::REQ))));
  const auto response = next();
  ASSERT_EQ(response.event, static_cast<std::uint32_t>(EventType::kConnectResponse));
  EXPECT_EQ(response.param.conn.flow_control, 1);
  EXPECT_EQ(response.param.conn.rnr_retry_count, 6);
  EXPECT_EQ(response.param.conn.qp_num, kGuestsQpn);

  const auto server = be_asked_by_guest();
  ASSERT_EQ(accept(server, 3, false), 0);
  work();
  const auto number = number_in(last(cm_attribute::REP));
  say(message<spec::cm_rtu>(cm_attribute::RTU, kGuestsId, number));
  const rdma_ucm_conn_param none{};
  const auto established = next();
  ASSERT_EQ(established.event, static_cast<std::uint32_t>(EventType::kEstablished));
  EXPECT_EQ(std::memcmp(&established.param.conn, &none, sizeof none), 0);
  say(message<spec::cm_rej>(cm_attribute::REJ, kGuestsId, number, [](auto body) {
    body.set(spec::cm_rej::reason, 28);
    body.sub(spec::cm_rej::private_data)[0] = std::byte{'x'};
  }));
  const auto rejected = next();
  ASSERT_EQ(rejected.event, static_cast<std::uint32_t>(EventType::kRejected));
  EXPECT_EQ(rejected.status, 28u);
  EXPECT_EQ(rejected.param.conn.qp_num, 0u);
  EXPECT_EQ(rejected.param.conn.private_data[0], 'x');
}

}  // namespace
}  // namespace softhca::rdma_cm
