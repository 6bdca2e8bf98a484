// The identifiers that may share a port number.
#include <gtest/gtest.h>

#include "rdma_cm/own_host.h"

namespace softhca::rdma_cm {
namespace {

TEST_F(RdmaCm, APortNumberIsOfOneIdentifier) {
  const auto first = listen(1, 7471);
  EXPECT_EQ(bind(create(2), 7471), EADDRINUSE);
  EXPECT_EQ(bind(create(3, RDMA_PS_UDP), 7471), 0) << "another port space";
  destroy(first);
  EXPECT_EQ(bind(create(4), 7471), 0);
}

// inet_get_local_port_range(), which an administrator sets.
TEST_F(RdmaCm, AnyPortNumberIsOneOfTheHostsRange) {
  for (const auto& range :
       {PortRange{.first = 7000, .last = 7002}, PortRange{.first = 65534, .last = 65535}}) {
    numbers_.used.clear();
    numbers_.range = range;
    for (unsigned port = range.first; port <= range.last; ++port) {
      EXPECT_EQ(bind(create(1), 0), 0);
    }
    EXPECT_EQ(bind(create(2), 0), EADDRNOTAVAIL) << "all are taken";
    for (unsigned port = range.first; port <= range.last; ++port) {
      EXPECT_EQ(numbers_.used.count({RDMA_PS_TCP, static_cast<std::uint16_t>(port)}), 1u) << port;
    }
  }
}

// An iSER target needs this: it listens at 0.0.0.0 and at ::.
TEST_F(RdmaCm, APortNumberHasAListenerForEachFamily) {
  const auto any4 = driver::Gid::from_ipv4(0, 0, 0, 0);
  const driver::Gid any6{};
  const auto six = create(6), four = create(4);  // a search finds the wrong one first
  ASSERT_EQ(bind(four, 3260, any4), 0);
  EXPECT_EQ(bind(create(5), 3260, any6), EADDRNOTAVAIL) << "that would be both";
  EXPECT_EQ(set_option(six, RDMA_OPTION_ID_AFONLY, std::uint8_t{1}), EINVAL) << "an int";
  ASSERT_EQ(set_option(six, RDMA_OPTION_ID_AFONLY, 1), 0);
  ASSERT_EQ(bind(six, 3260, any6), 0);
  for (const auto id : {six, four}) {
    EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1}), 0);
  }
  const auto client = create(1);
  resolve(client, 3260);
  connect(client, "");
  EXPECT_EQ(next().uid, 4u) << "who asks for an IPv4 address";
  destroy(four);
  EXPECT_EQ(numbers_.used.count({RDMA_PS_TCP, 3260}), 1u) << "the other still listens";
  destroy(six);
  EXPECT_EQ(numbers_.used.count({RDMA_PS_TCP, 3260}), 0u);
}

// rdma_bind_addr_dst() of Linux: an IPv4 address claims one family, unless the program has set
// RDMA_OPTION_ID_AFONLY.
TEST_F(RdmaCm, AnIpv4AddressIsOfBothFamiliesIfTheProgramWantsIt) {
  const auto any4 = driver::Gid::from_ipv4(0, 0, 0, 0);
  const driver::Gid any6{};
  const auto four = create(4), six = create(6);
  ASSERT_EQ(set_option(four, RDMA_OPTION_ID_AFONLY, 0), 0);
  ASSERT_EQ(bind(four, 3260, any4), 0);
  ASSERT_EQ(set_option(six, RDMA_OPTION_ID_AFONLY, 1), 0);
  EXPECT_EQ(bind(six, 3260, any6), EADDRNOTAVAIL);
  ASSERT_EQ(set_option(four, RDMA_OPTION_ID_AFONLY, 1), 0) << "also after binding";
  EXPECT_EQ(bind(six, 3260, any6), 0);
}

// cma_check_port() of Linux: the errno depends on the addresses.
TEST_F(RdmaCm, APortNumberIsTakenForAnAddressOrForAll) {
  const auto any = driver::Gid::from_ipv4(0, 0, 0, 0);
  const auto loopback = driver::Gid::from_ipv4(127, 0, 0, 1);
  const auto host = driver::Gid::from_ipv4(10, 1, 2, 3);
  ASSERT_EQ(bind(create(1), 7471, host), 0);
  EXPECT_EQ(bind(create(2), 7471, host), EADDRINUSE);
  EXPECT_EQ(bind(create(3), 7471, any), EADDRNOTAVAIL);
  EXPECT_EQ(bind(create(4), 7471, loopback), EADDRNOTAVAIL) << "counts as any";
  EXPECT_EQ(bind(create(5), 7471, kOwn), 0) << "another address";
  ASSERT_EQ(bind(create(6), 7472, loopback), 0);
  EXPECT_EQ(bind(create(7), 7472, kOwn), EADDRNOTAVAIL);
  EXPECT_EQ(bind(create(8), 7472, driver::Gid::from_ipv4(127, 0, 0, 2)), EADDRNOTAVAIL);
}

TEST_F(RdmaCm, APortNumberIsSharedUntilOneListens) {
  const auto first = create(1), second = create(2);
  for (const auto id : {first, second}) {
    ASSERT_EQ(set_option(id, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    EXPECT_EQ(bind(id, 7471), 0);
  }
  EXPECT_EQ(bind(create(3), 7471), EADDRINUSE) << "it does not share";
  const auto listen_at = [this](std::uint32_t id) {
    return command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1});
  };
  EXPECT_EQ(listen_at(first), EADDRINUSE);
  destroy(second);
  EXPECT_EQ(listen_at(first), 0);
  const auto late = create(4);
  ASSERT_EQ(set_option(late, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  EXPECT_EQ(bind(late, 7471), EADDRINUSE);
  EXPECT_EQ(set_option(first, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);
}

TEST_F(RdmaCm, AListenerOfAnAddressGetsNothingForAnother) {
  const auto other = driver::Gid::from_ipv4(198, 18, 0, 77);
  ASSERT_TRUE(program_.device().set_gid(7, uverbs::GidEntry{.gid = other}));
  const auto id = create(1);
  ASSERT_EQ(bind(id, 7471, other), 0);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1}), 0);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  EXPECT_EQ(next_type(), EventType::kRejected);
}

// docs/run.md: any address of this machine leads to a listening program.
TEST_F(RdmaCm, AnyAddressOfTheMachineLeadsToAListener) {
  listen(1, 7471);
  const auto client = create(2);
  ask_to_resolve(client, driver::Gid::from_ipv4(127, 0, 0, 1), 7471);
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  resolve_route(client);
  connect(client, "");
  EXPECT_EQ(next_type(), EventType::kConnectRequest);
}

TEST_F(RdmaCm, AddressesThatNoDeviceHasCannotBeBound) {
  const auto id = create(1);
  EXPECT_EQ(bind(id, 0, driver::Gid::from_ipv4(239, 1, 1, 1)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(id, 0, driver::Gid::from_ipv4(255, 255, 255, 255)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(id, 0, kGuest), EADDRNOTAVAIL);
  driver::Gid link_local{};
  link_local.bytes[0] = std::byte{0xfe};
  link_local.bytes[1] = std::byte{0x80};
  EXPECT_EQ(bind(id, 0, link_local), EINVAL) << "of which interface";
  rdma_ucm_bind in{};
  in.id = id;
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  std::memcpy(&mapped.sin6_addr, kOwn.bytes.data(), 16);
  in.addr_size = sizeof mapped;
  std::memcpy(&in.addr, &mapped, sizeof mapped);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_BIND, in), EADDRNOTAVAIL) << "::ffff:198.18.0.1";
  EXPECT_EQ(bind(create(2, RDMA_PS_IPOIB), 0), EINVAL) << "of InfiniBand";
  EXPECT_TRUE(numbers_.used.empty());
  EXPECT_EQ(bind(id, 0), 0) << "it is as it was";
  EXPECT_EQ(bind(id, 0), EINVAL) << "once";
}

// cma_bind_addr() of Linux: a loopback address belongs to no device.
TEST_F(RdmaCm, LoopbackIsBoundToWithoutADevice) {
  const auto node_guid = [this](std::uint32_t id) {
    rdma_ucm_query_addr_resp out{};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                      rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&out),
                                     .id = id,
                                     .option = RDMA_USER_CM_QUERY_ADDR}),
              0);
    EXPECT_EQ(out.pkey, 0);
    EXPECT_EQ(out.dst_addr.ss_family, AF_INET) << "as that of the source";
    return out.node_guid;
  };
  const auto loopback = create(1), own = create(2);
  ASSERT_EQ(bind(loopback, 0, driver::Gid::from_ipv4(127, 0, 0, 1)), 0);
  EXPECT_EQ(node_guid(loopback), 0u);
  ASSERT_EQ(bind(own, 0), 0);
  EXPECT_EQ(be64toh(node_guid(own)), 1u);
}

}  // namespace
}  // namespace softhca::rdma_cm
