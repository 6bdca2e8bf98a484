// Addresses of identifiers: which device owns them, which peer resolves them, and what the other
// end sees.
#include <gtest/gtest.h>

#include "rdma_cm/own_host.h"

namespace softhca::rdma_cm {
namespace {

TEST_F(RdmaCm, AnUnknownAddressIsAskedFor) {
  const auto client = create(2);
  ask_to_resolve(client, kGuest, 7471);
  rdma_ucm_event_resp none{};
  EXPECT_EQ(get_event(none), EAGAIN);
  EXPECT_EQ(asked_.size(), 1u);
  now_ += std::chrono::milliseconds(500);
  manager_->tick(now_);
  EXPECT_EQ(asked_.size(), 2u) << "a request may be lost";
  EXPECT_EQ(get_event(none), EAGAIN);
  guest_is_known_ = true;
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  EXPECT_EQ(asked_.back(), kGuest);
  resolve_route(client);
  // With an Ethernet MTU of 1500, Linux takes packets of at most 1024 bytes.
  struct {
    std::uint64_t head[2];
    std::byte record[64];
  } path{};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                    rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&path),
                                   .id = client,
                                   .option = RDMA_USER_CM_QUERY_PATH}),
            0);
  EXPECT_EQ(path.record[54], std::byte{0x80 | 3});
}

TEST_F(RdmaCm, AnUnansweredAddressEndsAtTheTimeout) {
  const auto client = create(2);
  ask_to_resolve(client, kGuest, 7471);
  now_ += std::chrono::milliseconds(1999);
  manager_->tick(now_);
  rdma_ucm_event_resp none{};
  EXPECT_EQ(get_event(none), EAGAIN);
  now_ += std::chrono::milliseconds(1);
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kAddrError));
  EXPECT_EQ(static_cast<std::int32_t>(event.status), -ETIMEDOUT);
}

// The door warns of an address of another network.
TEST_F(RdmaCm, AnAddressWithoutAnAnswerIsReportedOnce) {
  ask_to_resolve(create(2), kGuest, 7471);
  now_ += std::chrono::milliseconds(1999);
  manager_->tick(now_);
  EXPECT_TRUE(unresolved_.empty()) << "the answer may still come";
  now_ += std::chrono::milliseconds(1);
  for (int i = 0; i < 3; ++i) manager_->tick(now_);
  EXPECT_EQ(unresolved_, std::vector{kGuest});
}

TEST_F(RdmaCm, AnAddressWithAnAnswerIsNotReported) {
  ask_to_resolve(create(2), kGuest, 7471);
  now_ += std::chrono::milliseconds(1999);
  guest_is_known_ = true;
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  now_ += std::chrono::milliseconds(1);
  manager_->tick(now_);
  EXPECT_TRUE(unresolved_.empty());
}

/// A process with a second device, which has its own address. Both also have link-local addresses.
class RdmaCmOfTwo : public RdmaCm {
 protected:
  RdmaCmOfTwo() {
    for (auto* device : {&program_.device(), &second_.device()}) {
      const auto set = device->set_gid(2, uverbs::GidEntry{.gid = kLinkLocal});
      EXPECT_TRUE(set);
    }
    EXPECT_TRUE(second_.device().set_gid(0, std::nullopt));
    EXPECT_TRUE(second_.device().set_gid(5, uverbs::GidEntry{.gid = kSecond}));
    const Manager::Port ports[] = {{program_.device(), 1}, {second_.device(), 2}};
    manager_.reset();  // a port has one QP1
    manager_ = *Manager::create(
        ports, memory_,
        {.port_numbers = numbers_,
         .is_member = [](const driver::Gid& gid) { return gid == kOwn || gid.is_link_local(); },
         .is_local = [](const SocketAddress&) { return true; }});
    channel_ = *manager_->open();
  }
  ~RdmaCmOfTwo() override { manager_.reset(); }
  Errno bind_to(std::uint32_t id, const driver::Gid& gid, std::uint16_t port) {
    rdma_ucm_bind in{};
    in.id = id;
    const auto address = SocketAddress::of(gid, port);
    in.addr_size = address.size();
    std::memcpy(&in.addr, &address.storage, sizeof in.addr);
    return command(RDMA_USER_CM_CMD_BIND, in);
  }
  rdma_ucm_query_addr_resp query(std::uint32_t id) {
    rdma_ucm_query_addr_resp out{};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                      rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&out),
                                     .id = id,
                                     .option = RDMA_USER_CM_QUERY_ADDR}),
              0);
    return out;
  }

  static inline const driver::Gid kSecond = driver::Gid::from_ipv4(198, 18, 0, 2);
  static inline const driver::Gid kLinkLocal{{std::byte{0xfe}, std::byte{0x80}}};
  uverbs::Program second_;
};

TEST_F(RdmaCmOfTwo, AnIdentifierBoundToAnAddressHasItsDevice) {
  const auto first = create(1), second = create(2);
  EXPECT_EQ(bind_to(first, kOwn, 0), 0);
  EXPECT_EQ(bind_to(second, kSecond, 0), 0);
  EXPECT_EQ(be64toh(query(first).node_guid), 1u);
  EXPECT_EQ(be64toh(query(second).node_guid), 2u);
}

TEST_F(RdmaCmOfTwo, AListenerOfOneDeviceGetsNothingOfTheOther) {
  const auto listener = create(1);
  EXPECT_EQ(bind_to(listener, kSecond, 7471), 0);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = listener, .backlog = 1}), 0);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kRejected));
  EXPECT_EQ(event.status, 8u) << "no such service";
}

// Linux's routing table has no route from the address of one device to another device of the host.
TEST_F(RdmaCmOfTwo, NoWayLeadsFromOneDeviceToTheOther) {
  const auto client = create(1);
  ASSERT_EQ(bind_to(client, kOwn, 0), 0);
  ask_to_resolve(client, kSecond, 7471);
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kAddrError));
  EXPECT_EQ(static_cast<std::int32_t>(event.status), -ETIMEDOUT);
}

// IETF RFC 6724 5: prefer a source address of the same family.
TEST_F(RdmaCmOfTwo, AnIpv6PeerIsSpokenToFromAnIpv6Address) {
  const auto client = create(2);
  ask_to_resolve(client, kLinkLocal, 7471);
  ASSERT_EQ(next_type(), EventType::kAddrResolved);
  resolve_route(client);
  struct {
    std::uint64_t head[2];
    std::uint64_t service;
    std::array<std::byte, 16> to, from;
    std::byte rest[24];
  } path{};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                    rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&path),
                                   .id = client,
                                   .option = RDMA_USER_CM_QUERY_PATH}),
            0);
  EXPECT_EQ(path.to, kLinkLocal.bytes);
  EXPECT_EQ(path.from, kLinkLocal.bytes);
  EXPECT_EQ(query(client).src_addr.ss_family, AF_INET6);
}

// cma_bind_addr() of Linux. A program may bind another identifier to the address.
TEST_F(RdmaCmOfTwo, ALinkLocalSourceIsOfTheInterfaceOfItsDestination) {
  const auto client = create(2);
  auto to = SocketAddress::of(kLinkLocal, 7471);
  reinterpret_cast<sockaddr_in6&>(to.storage).sin6_scope_id = 7;
  rdma_ucm_resolve_addr in{};
  in.id = client;
  in.timeout_ms = 2000;
  in.dst_size = to.size();
  std::memcpy(&in.dst_addr, &to.storage, sizeof in.dst_addr);
  ASSERT_EQ(command(RDMA_USER_CM_CMD_RESOLVE_ADDR, in), 0);
  ASSERT_EQ(next_type(), EventType::kAddrResolved);
  SocketAddress source;
  const auto found = query(client);
  std::memcpy(&source.storage, &found.src_addr, sizeof source.storage);
  EXPECT_EQ(source.gid(), kLinkLocal);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in6&>(source.storage).sin6_scope_id, 7u);
}

// As in Linux: a client that connects to 127.0.0.1 has that source address, at both ends.
TEST_F(RdmaCm, AConnectionToAnAddressOfTheMachineComesFromIt) {
  const auto local = driver::Gid::from_ipv4(127, 0, 0, 1);
  listen(1, 7471);
  const auto client = create(2);
  ask_to_resolve(client, local, 7471);
  ASSERT_EQ(next_type(), EventType::kAddrResolved);
  resolve_route(client);
  connect(client, "hello");
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  const auto addresses = [this](std::uint32_t id) {
    rdma_ucm_query_addr_resp out{};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                      rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&out),
                                     .id = id,
                                     .option = RDMA_USER_CM_QUERY_ADDR}),
              0);
    SocketAddress source, destination;
    std::memcpy(&source.storage, &out.src_addr, sizeof source.storage);
    std::memcpy(&destination.storage, &out.dst_addr, sizeof destination.storage);
    return std::pair(source, destination);
  };
  const auto [here, there] = addresses(client);
  EXPECT_EQ(here.gid(), local);
  EXPECT_EQ(there.gid(), local);
  const auto [own, peer] = addresses(request.id);
  EXPECT_EQ(own.gid(), local);
  EXPECT_EQ(own.port(), 7471);
  EXPECT_EQ(peer.gid(), local);
  EXPECT_EQ(peer.port(), here.port());
  EXPECT_EQ(accept(request.id, 3, false), 0);
  EXPECT_EQ(next_type(), EventType::kConnectResponse);
}

// The addresses of other machines -----------------------------------------------------------------

TEST_F(RdmaCm, AnAddressOfAnotherMachineLeadsToTheProgramThatHasThePortNumber) {
  listen(1, 7471);
  const auto client = create(2);
  guest_is_known_ = true;
  owner_ = kGuest;  // out of date
  ask_to_resolve(client, kMachine, 7471);
  EXPECT_TRUE(is_quiet()) << "the old answer does not count";
  EXPECT_EQ(asked_services_, (decltype(asked_services_){{kMachine, RDMA_PS_TCP, 7471}}));
  owner_ = kOwn;
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  resolve_route(client);
  connect(client, "");

  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  rdma_ucm_query_addr_resp addresses{};
  rdma_ucm_query in{};
  in.response = reinterpret_cast<std::uint64_t>(&addresses);
  in.id = request.id;
  in.option = RDMA_USER_CM_QUERY_ADDR;
  ASSERT_EQ(command(RDMA_USER_CM_CMD_QUERY, in), 0);
  SocketAddress source;
  std::memcpy(&source.storage, &addresses.src_addr, sizeof addresses.src_addr);
  EXPECT_EQ(source.gid(), kMachine) << "the address that the client has called";
  ASSERT_EQ(accept(request.id, 3, false), 0);
  EXPECT_EQ(next_type(), EventType::kConnectResponse);
}

TEST_F(RdmaCm, TheProgramsOwnAddressIsAskedForBeforeItIsResolved) {
  const auto client = create(2);
  ask_to_resolve(client, kMachine, 7471);
  owner_ = kGuest;
  EXPECT_TRUE(is_quiet());
  now_ += std::chrono::milliseconds(300);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(asked_.back(), kGuest);
  guest_is_known_ = true;
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
}

// No device has a global IPv6 address.
TEST_F(RdmaCm, AnIpv6AddressOfAnotherMachineLeadsToAProgramsLinkLocalAddress) {
  const auto client = create(2);
  ask_to_resolve(client, kMachine6, 7471);
  owner_ = kProgram6;
  EXPECT_TRUE(is_quiet());
  ASSERT_EQ(asked_services_, (decltype(asked_services_){{kMachine6, RDMA_PS_TCP, 7471}}));
  now_ += std::chrono::milliseconds(300);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(asked_.back(), kProgram6);
  program6_is_known_ = true;
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  const auto linked = create(3);
  ask_to_resolve(linked, kProgram6, 7471);
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  program6_is_known_ = false;
  const auto before = asked_services_.size();
  ask_to_resolve(create(4), kProgram6, 7471);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(asked_services_.size(), before) << "a link-local address is a program's own";
}

TEST_F(RdmaCm, AnAddressOfAMachineWhoseProgramsDoNotListenIsNotResolved) {
  const auto client = create(2);
  ask_to_resolve(client, kMachine, 7471);
  now_ += std::chrono::milliseconds(300);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(asked_services_.size(), 2u) << "a question may be lost";
  now_ += std::chrono::seconds(2);
  EXPECT_EQ(next_type(), EventType::kAddrError);
  EXPECT_EQ(unresolved_, std::vector{kMachine});
}

}  // namespace
}  // namespace softhca::rdma_cm
