// Commands for datagrams: Q_Keys, SIDR messages and groups.
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "rdma_cm/command_host.h"

namespace softhca::rdma_cm {
namespace {

TEST_F(RdmaCmCommands, PrivateDataThatASidrReplyHasNoRoomForAreRefused) {
  listen(1, 7471, RDMA_PS_UDP);
  auto request = ask(RDMA_PS_UDP);
  EXPECT_EQ(accept_with(request.id, 136), 0);
  EXPECT_EQ(next_type(), EventType::kEstablished);
  request = ask(RDMA_PS_UDP);
  EXPECT_EQ(accept_with(request.id, 137), EINVAL);
  auto answer = next();
  EXPECT_EQ(answer.event, static_cast<std::uint32_t>(EventType::kUnreachable));
  EXPECT_EQ(answer.status, 2u);
  request = ask(RDMA_PS_UDP);
  EXPECT_EQ(reject_with(request.id, 137), EINVAL);
  EXPECT_EQ(reject_with(request.id, 135), 0);
  answer = next();
  EXPECT_EQ(answer.event, static_cast<std::uint32_t>(EventType::kUnreachable));
  EXPECT_EQ(answer.param.ud.private_data[134], 'x');
  EXPECT_EQ(answer.param.ud.private_data[135], 0);
  EXPECT_EQ(answer.param.ud.qp_num, 0u);
  EXPECT_EQ(answer.param.ud.ah_attr.is_global, 0);
}

// cma_set_qkey() of Linux.
TEST_F(RdmaCmCommands, AQpOfDatagramsKeepsTheQkeyThatItHas) {
  const auto answered = [this](bool has_qp, std::uint32_t qkey) {
    using Rep = spec::cm_sidr_rep;
    const auto client = create(2, RDMA_PS_UDP);
    resolve_guest(client);
    if (has_qp) {
      EXPECT_EQ(attributes_of(client, 1).qkey, kDefaultQkey);
    }
    connect(client, "");
    work();
    Message<Rep> rep(cm_attribute::SIDR_REP, 1);
    rep.body().set(Rep::request_id, number_in(last(cm_attribute::SIDR_REQ)));
    rep.body().set(Rep::qpn, 0x300);
    rep.body().set(Rep::qkey, qkey);
    say(rep.mad());
    const auto event = next();
    const bool established = event.event == static_cast<std::uint32_t>(EventType::kEstablished);
    EXPECT_EQ(event.event, static_cast<std::uint32_t>(established ? EventType::kEstablished
                                                                  : EventType::kAddrError));
    EXPECT_EQ(static_cast<std::int32_t>(event.status), established ? 0 : -EINVAL);
    EXPECT_EQ(event.param.ud.qp_num, established ? 0x300u : 0u);
    EXPECT_EQ(event.param.ud.qkey, established ? qkey : 0u);
    return established;
  };
  EXPECT_TRUE(answered(true, kDefaultQkey));
  EXPECT_FALSE(answered(true, 0x77));
  EXPECT_TRUE(answered(false, 0x77)) << "without a QP any Q_Key will do";
  EXPECT_FALSE(answered(false, 0)) << "but there must be one";
}

// ucma_copy_conn_param() of Linux: only AF_IB addresses have Q_Keys of the program.
TEST_F(RdmaCmCommands, TheQkeyOfADatagramServiceIsNotTheProgramsChoice) {
  listen(1, 7471, RDMA_PS_UDP);
  rdma_ucm_accept in{};
  in.uid = 3;
  in.id = ask(RDMA_PS_UDP).id;
  in.conn_param = param(0x200, "");
  in.conn_param.qkey = 0x77;
  ASSERT_EQ(command(RDMA_USER_CM_CMD_ACCEPT, in), 0);
  EXPECT_EQ(next().param.ud.qkey, kDefaultQkey);
}

// A REQ carries a path, a SIDR REQ carries none.
TEST_F(RdmaCmCommands, ARequestOfDatagramsHasNoPath) {
  listen(1, 7471);
  listen(2, 7471, RDMA_PS_UDP);
  const auto paths = [this](std::uint32_t id) {
    std::array<std::uint32_t, 20> path{};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                      rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&path),
                                     .id = id,
                                     .option = RDMA_USER_CM_QUERY_PATH}),
              0);
    return path[0];
  };
  EXPECT_EQ(paths(ask(RDMA_PS_TCP).id), 1u);
  EXPECT_EQ(paths(ask(RDMA_PS_UDP).id), 0u);
}

TEST_F(RdmaCmCommands, AGroupOfIpv6IsNoneForRoceV2) {
  const auto id = create(1, RDMA_PS_UDP);
  ASSERT_EQ(bind(id, 0), 0);
  rdma_ucm_create_id_resp made{};
  rdma_ucm_join_mcast in{};
  in.response = reinterpret_cast<std::uint64_t>(&made);
  in.id = id;
  sockaddr_in6 group{};
  group.sin6_family = AF_INET6;
  group.sin6_addr.s6_addr[0] = 0xff;
  group.sin6_addr.s6_addr[1] = 0x0e;
  in.addr_size = sizeof group;
  std::memcpy(&in.addr, &group, sizeof group);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_JOIN_MCAST, in), 524) << "ENOTSUPP";
}

}  // namespace
}  // namespace softhca::rdma_cm
