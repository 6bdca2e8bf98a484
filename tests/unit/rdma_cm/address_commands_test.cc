// Addresses that Linux binds and resolves, or refuses.
#include <endian.h>
#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rdma_cm/command_host.h"

namespace softhca::rdma_cm {
namespace {

// rdma_bind_addr() and rdma_resolve_addr() of Linux on a host whose ports are all RoCE.
TEST_F(RdmaCmCommands, AddressesOfInfiniBandHaveNoDevice) {
  constexpr std::uint64_t kMask = 0xffff'ffff'ffff'0000;
  rdma_ucm_bind in{};
  IbAddress to{};
  to.family = kFamilyIb;
  to.service = htobe64(service_of(RDMA_PS_TCP, 0));
  to.service_mask = htobe64(kMask);
  const auto bind_ib = [&](std::uint32_t id, std::uint16_t size = sizeof(IbAddress)) {
    in.id = id;
    in.addr_size = size;
    std::memcpy(&in.addr, &to, sizeof to);
    return command(RDMA_USER_CM_CMD_BIND, in);
  };
  const auto probe = create_of(RDMA_PS_IB, IB_UVERBS_QPT_RC);
  EXPECT_EQ(bind_ib(probe, sizeof to - 1), EINVAL);
  EXPECT_EQ(bind_ib(probe), 0) << "as librdmacm asks";
  EXPECT_EQ(bind_ib(probe), EINVAL) << "it is bound";
  EXPECT_EQ(bind(probe, 7471), EINVAL);
  rdma_ucm_query_addr_resp addresses{};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                    rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&addresses),
                                   .id = probe,
                                   .option = RDMA_USER_CM_QUERY_ADDR}),
            0);
  EXPECT_EQ(addresses.src_size, sizeof to);
  EXPECT_EQ(resolve_from(probe, SocketAddress{}, SocketAddress::of(kGuest, 7471)), EINVAL);
  EXPECT_EQ(bind_ib(create(2)), 0);
  EXPECT_EQ(bind_ib(create(3, RDMA_PS_UDP)), EPROTONOSUPPORT) << "the service is of another space";
  EXPECT_EQ(bind_ib(create(4, RDMA_PS_IPOIB)), EPROTONOSUPPORT);
  to.gid[0] = 0xfe;
  EXPECT_EQ(bind_ib(create(5)), ENODEV);

  SocketAddress remote;
  std::memcpy(&remote.storage, &to, sizeof to);
  const auto client = create(6);
  EXPECT_EQ(resolve_from(client, SocketAddress{}, remote), ENODEV);
  EXPECT_EQ(bind(client, 7471), EINVAL) << "as after any attempt to resolve";
  EXPECT_EQ(resolve_from(create(7), SocketAddress::of(kOwn, 0), remote), EINVAL);
  EXPECT_TRUE(is_quiet());
}

TEST_F(RdmaCmCommands, UnreachableAddressesAreNotResolved) {
  const auto none = SocketAddress{};
  const auto to = [](const driver::Gid& gid) { return SocketAddress::of(gid, 7471); };
  const auto id = create(1);
  EXPECT_EQ(resolve_from(id, none, to(driver::Gid::from_ipv4(255, 255, 255, 255))), ENETUNREACH);
  EXPECT_EQ(resolve_from(id, none, to(driver::Gid::from_ipv4(239, 1, 1, 1))), ENETUNREACH);
  EXPECT_EQ(resolve_from(create(2, RDMA_PS_UDP), none, to(driver::Gid::from_ipv4(239, 1, 1, 1))),
            0);
  EXPECT_EQ(next_type(), EventType::kAddrResolved) << "a group is no host, but mckey asks for it";
  EXPECT_EQ(resolve_from(id, none, to(kGuest)), 0) << "it is as it was";
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  // The address belongs to a device.
  const auto own = SocketAddress::of(kOwn, 0);
  EXPECT_EQ(resolve_from(create(4), own, to(driver::Gid::from_ipv4(239, 1, 1, 1))), 0);
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  EXPECT_EQ(resolve_from(create(5), own, to(driver::Gid::from_ipv4(255, 255, 255, 255))), 0);
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  const auto loopback = SocketAddress::of(driver::Gid::from_ipv4(127, 0, 0, 1), 0);
  EXPECT_EQ(resolve_from(create(6), loopback, to(driver::Gid::from_ipv4(239, 1, 1, 1))), ENODEV);
  driver::Gid group{};
  group.bytes[0] = std::byte{0xff};
  group.bytes[1] = std::byte{0x0e};
  EXPECT_EQ(resolve_from(create(3), none, to(group)), 0);
  const auto error = next();
  EXPECT_EQ(error.event, static_cast<std::uint32_t>(EventType::kAddrError));
  EXPECT_EQ(static_cast<std::int32_t>(error.status), -ENODEV);
}

TEST_F(RdmaCmCommands, TheSourceIsTheHostsAndOfTheSameFamily) {
  const auto to = SocketAddress::of(kOwn, 7471);
  EXPECT_EQ(resolve_from(create(1), SocketAddress::of(kGuest, 0), to), EADDRNOTAVAIL);
  driver::Gid loopback{};
  loopback.bytes[15] = std::byte{1};
  EXPECT_EQ(resolve_from(create(2), SocketAddress::of(loopback, 0), to), EINVAL);
  EXPECT_EQ(resolve_from(create(3), SocketAddress::of(kOwn, 0), to), 0);
}

}  // namespace
}  // namespace softhca::rdma_cm
