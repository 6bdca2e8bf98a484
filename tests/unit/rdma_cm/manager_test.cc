// Identifiers and the communication manager: a host that connects to itself, by real management
// datagrams that its device loops back.
#include "rdma_cm/manager.h"

#include <endian.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "uverbs/program.h"

namespace softhca::rdma_cm {
namespace {

const driver::Gid kOwn = driver::Gid::from_ipv4(198, 18, 0, 1);
const driver::Gid kGuest = driver::Gid::from_ipv4(198, 19, 0, 1);

class Numbers final : public PortNumbers {
 public:
  bool claim(std::uint16_t space, std::uint16_t port, const driver::Gid&) override {
    return used.insert({space, port}).second;
  }
  void release(std::uint16_t space, std::uint16_t port) override { used.erase({space, port}); }
  std::optional<driver::Gid> find(std::uint16_t, std::uint16_t) override { return kOwn; }
  std::set<std::pair<std::uint16_t, std::uint16_t>> used;
};

class RdmaCm : public testing::Test {
 protected:
  RdmaCm() {
    const Manager::Port port{program_.device(), 1};
    manager_ = *Manager::create(
        std::span(&port, 1), memory_,
        {.port_numbers = numbers_,
         .is_member =
             [this](const driver::Gid& gid) {
               return gid == kOwn || (gid == kGuest && guest_is_known_);
             },
         .is_local = [](const SocketAddress& address) { return address.gid() != kGuest; },
         .ask = [this](const driver::Gid& gid) { asked_.push_back(gid); },
         .path_mtu = [](const driver::Gid& gid) -> std::uint8_t { return gid == kGuest ? 3 : 5; },
         .is_gone = [this](const driver::Gid&) { return peer_is_gone_; },
         .clock = [this] { return now_; }});
    channel_ = *manager_->open();
  }

  template <class Payload>
  Errno command(std::uint32_t number, const Payload& payload) {
    std::vector<std::byte> bytes(sizeof(rdma_ucm_cmd_hdr) + sizeof payload);
    const rdma_ucm_cmd_hdr header{.cmd = number, .in = sizeof payload, .out = 0};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &payload, sizeof payload);
    return manager_->serve(*channel_, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(),
                           [this](int) { return named_; });
  }
  std::uint32_t create(std::uint64_t uid, std::uint16_t space = RDMA_PS_TCP) {
    rdma_ucm_create_id_resp out{};
    rdma_ucm_create_id in{};
    in.uid = uid;
    in.response = reinterpret_cast<std::uint64_t>(&out);
    in.ps = space;
    in.qp_type = space == RDMA_PS_TCP ? 2 : 4;
    EXPECT_EQ(command(RDMA_USER_CM_CMD_CREATE_ID, in), 0);
    return out.id;
  }
  Errno bind(std::uint32_t id, std::uint16_t port) {
    rdma_ucm_bind in{};
    in.id = id;
    in.addr_size = sizeof(sockaddr_in);
    const auto address = SocketAddress::of(kOwn, port);
    std::memcpy(&in.addr, &address.storage, sizeof in.addr);
    return command(RDMA_USER_CM_CMD_BIND, in);
  }
  std::uint32_t listen(std::uint64_t uid, std::uint16_t port, std::uint16_t space = RDMA_PS_TCP) {
    const auto id = create(uid, space);
    EXPECT_EQ(bind(id, port), 0);
    EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1}), 0);
    return id;
  }
  void ask_to_resolve(std::uint32_t id, const driver::Gid& to, std::uint16_t port) {
    rdma_ucm_resolve_addr in{};
    in.id = id;
    in.timeout_ms = 2000;
    const auto address = SocketAddress::of(to, port);
    in.dst_size = address.size();
    std::memcpy(&in.dst_addr, &address.storage, sizeof in.dst_addr);
    EXPECT_EQ(command(RDMA_USER_CM_CMD_RESOLVE_ADDR, in), 0);
  }
  void resolve(std::uint32_t id, std::uint16_t port) {
    ask_to_resolve(id, kOwn, port);
    EXPECT_EQ(next().event, static_cast<std::uint32_t>(EventType::kAddrResolved));
  }
  static rdma_ucm_conn_param param(std::uint32_t qpn, std::string_view data) {
    rdma_ucm_conn_param out{};
    out.qp_num = qpn;
    out.responder_resources = 3;
    out.initiator_depth = 5;
    out.valid = 1;
    out.private_data_len = static_cast<std::uint8_t>(data.size());
    std::memcpy(out.private_data, data.data(), data.size());
    return out;
  }
  void connect(std::uint32_t id, std::string_view data) {
    rdma_ucm_connect in{};
    in.id = id;
    in.conn_param = param(0x100, data);
    EXPECT_EQ(command(RDMA_USER_CM_CMD_CONNECT, in), 0);
  }
  Errno accept(std::uint32_t id, std::uint64_t uid, bool active) {
    rdma_ucm_accept in{};
    in.uid = uid;
    in.id = id;
    if (!active) in.conn_param = param(0x200, "yes");
    return command(RDMA_USER_CM_CMD_ACCEPT, in);
  }
  Errno get_event(rdma_ucm_event_resp& out) {
    rdma_ucm_get_event in{.response = reinterpret_cast<std::uint64_t>(&out)};
    return command(RDMA_USER_CM_CMD_GET_EVENT, in);
  }
  /// All that is on its way arrives.
  void work() {
    for (int i = 0; i != 50; ++i) {
      program_.device().hca().host().progress();
      program_.device().poll_events();
    }
  }
  /// The next event; of type 99 if none comes.
  rdma_ucm_event_resp next() {
    rdma_ucm_event_resp out{};
    for (int i = 0; i != 1000; ++i) {
      if (get_event(out) == 0) return out;
      program_.device().hca().host().progress();
      program_.device().poll_events();
      manager_->tick();
    }
    out.event = 99;
    return out;
  }
  EventType next_type() { return static_cast<EventType>(next().event); }
  std::uint32_t destroy(std::uint32_t id) {
    rdma_ucm_destroy_id_resp out{};
    rdma_ucm_destroy_id in{
        .response = reinterpret_cast<std::uint64_t>(&out), .id = id, .reserved = 0};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_DESTROY_ID, in), 0);
    return out.events_reported;
  }

  uverbs::Program program_;
  uverbs::OwnMemory memory_;
  Numbers numbers_;
  bool guest_is_known_ = false;
  bool peer_is_gone_ = false;
  std::vector<driver::Gid> asked_;
  util::Time now_ = util::monotonic_now();
  std::unique_ptr<Manager> manager_;
  Channel* channel_;
  Channel* named_ = nullptr;  ///< the channel of any descriptor that a command names
};

TEST_F(RdmaCm, WhatIsNoCommandIsRefused) {
  EXPECT_EQ(command(99, std::uint64_t{0}), ENOSYS);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_BIND, std::uint64_t{0}), EINVAL) << "too short";
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = 7, .backlog = 1}), ENOENT);
  rdma_ucm_event_resp event;
  EXPECT_EQ(get_event(event), EAGAIN);
}

TEST_F(RdmaCm, APortNumberIsOfOneIdentifier) {
  const auto first = listen(1, 7471);
  EXPECT_EQ(bind(create(2), 7471), EADDRINUSE);
  EXPECT_EQ(bind(create(3, RDMA_PS_UDP), 7471), 0) << "another port space";
  destroy(first);
  EXPECT_EQ(bind(create(4), 7471), 0);
}

TEST_F(RdmaCm, AConnectionIsMadeAndEnds) {
  const auto listener = listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "hello");

  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_EQ(request.uid, 1u) << "whose program gives the new one a name when it accepts";
  EXPECT_STREQ(reinterpret_cast<const char*>(request.param.conn.private_data), "hello");
  EXPECT_EQ(request.param.conn.responder_resources, 5) << "what the other begins, we respond to";
  EXPECT_EQ(request.param.conn.initiator_depth, 3);
  ASSERT_EQ(accept(request.id, 3, false), 0);

  const auto response = next();
  ASSERT_EQ(response.event, static_cast<std::uint32_t>(EventType::kConnectResponse));
  EXPECT_EQ(response.uid, 2u);
  EXPECT_EQ(response.param.conn.qp_num, 0x200u);
  EXPECT_STREQ(reinterpret_cast<const char*>(response.param.conn.private_data), "yes");
  ASSERT_EQ(accept(client, 2, true), 0);
  const auto established = next();
  EXPECT_EQ(established.event, static_cast<std::uint32_t>(EventType::kEstablished));
  EXPECT_EQ(established.uid, 3u);

  EXPECT_EQ(command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = client}), 0);
  EXPECT_EQ(next_type(), EventType::kDisconnected);
  EXPECT_EQ(next_type(), EventType::kDisconnected) << "both are told";
  rdma_ucm_event_resp none{};
  manager_->tick();
  EXPECT_EQ(get_event(none), EAGAIN);
  now_ += std::chrono::milliseconds(537);
  EXPECT_EQ(next_type(), EventType::kTimeWaitExit) << "IBTA 12.4: its numbers are free";
  EXPECT_EQ(next_type(), EventType::kTimeWaitExit);
  now_ += std::chrono::seconds(10);
  manager_->tick();
  EXPECT_EQ(get_event(none), EAGAIN) << "once";
  EXPECT_EQ(destroy(client), 4u) << "events that its program has read";
  EXPECT_EQ(destroy(request.id), 3u);
  EXPECT_EQ(destroy(listener), 1u);
  EXPECT_TRUE(numbers_.used.empty());
}

TEST_F(RdmaCm, WhatWaitsForAListenerThatMigratesGoesWithIt) {
  const auto listener = listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "hello");
  work();

  named_ = std::exchange(channel_, *manager_->open());
  rdma_ucm_migrate_resp out{};
  rdma_ucm_migrate_id in{};
  in.response = reinterpret_cast<std::uint64_t>(&out);
  in.id = listener;
  ASSERT_EQ(command(RDMA_USER_CM_CMD_MIGRATE_ID, in), 0);
  EXPECT_EQ(out.events_reported, 0u);
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_EQ(accept(request.id, 3, false), 0);

  channel_ = named_;
  EXPECT_EQ(next_type(), EventType::kConnectResponse) << "the client stays where it was";
}

// What the kernel of a process that is killed says, others have to find out.
TEST_F(RdmaCm, APeerThatIsGoneHasDisconnected) {
  listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto request = next();
  ASSERT_EQ(accept(request.id, 3, false), 0);
  ASSERT_EQ(next_type(), EventType::kConnectResponse);
  ASSERT_EQ(accept(client, 2, true), 0);
  ASSERT_EQ(next_type(), EventType::kEstablished);
  peer_is_gone_ = true;
  rdma_ucm_event_resp none{};
  manager_->tick();
  EXPECT_EQ(get_event(none), EAGAIN) << "it is looked for now and then";
  now_ += std::chrono::seconds(1);
  manager_->tick();
  EXPECT_EQ(next_type(), EventType::kDisconnected);
  EXPECT_EQ(next_type(), EventType::kDisconnected) << "both ends are here";
  EXPECT_EQ(command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = client}), 0);
  now_ += std::chrono::seconds(1);
  manager_->tick();
  EXPECT_EQ(get_event(none), EAGAIN) << "once";
}

// IBTA 12.6.6: who has to wait for his program says so, and the request is not given up meanwhile.
TEST_F(RdmaCm, AProgramMayTakeItsTimeToAnswer) {
  listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  for (int i = 0; i != 60; ++i) {
    now_ += std::chrono::seconds(1);
    rdma_ucm_event_resp none{};
    for (int turns = 0; turns != 20; ++turns) {
      program_.device().hca().host().progress();
      program_.device().poll_events();
      manager_->tick();
    }
    ASSERT_EQ(get_event(none), EAGAIN) << "after " << i << " s: " << none.event;
  }
  ASSERT_EQ(accept(request.id, 3, false), 0);
  EXPECT_EQ(next_type(), EventType::kConnectResponse);
}

// perftest's -R: its server ends one listener and begins the next, and its client may be faster.
TEST_F(RdmaCm, WhoHasJustListenedMayListenAgain) {
  destroy(listen(1, 7471));
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto listener = listen(3, 7471);
  now_ += std::chrono::milliseconds(500);
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  destroy(request.id);
  EXPECT_EQ(next_type(), EventType::kRejected);
  destroy(listener);

  const auto late = create(4);
  resolve(late, 7471);
  connect(late, "");
  rdma_ucm_event_resp none{};
  EXPECT_EQ(get_event(none), EAGAIN);
  now_ += Manager::kListenAgain;
  EXPECT_EQ(next_type(), EventType::kRejected) << "nobody has come";
}

TEST_F(RdmaCm, WhereNobodyListensThereIsNoSuchService) {
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kRejected));
  EXPECT_EQ(event.status, 8u);
}

// host-door contract 8.4: the event comes when the network has answered, or at the timeout.
TEST_F(RdmaCm, AnAddressThatNobodyKnowsIsAskedFor) {
  const auto client = create(2);
  ask_to_resolve(client, kGuest, 7471);
  rdma_ucm_event_resp none{};
  EXPECT_EQ(get_event(none), EAGAIN);
  EXPECT_EQ(asked_.size(), 1u);
  now_ += std::chrono::milliseconds(500);
  manager_->tick();
  EXPECT_EQ(asked_.size(), 2u) << "a request may be lost";
  EXPECT_EQ(get_event(none), EAGAIN);
  guest_is_known_ = true;
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  EXPECT_EQ(asked_.back(), kGuest);
  // A Linux with an Ethernet of 1500 bytes takes packets of 1024 at most.
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

TEST_F(RdmaCm, AnAddressThatNobodyAnswersForEndsAtTheTimeout) {
  const auto client = create(2);
  ask_to_resolve(client, kGuest, 7471);
  now_ += std::chrono::milliseconds(1999);
  manager_->tick();
  rdma_ucm_event_resp none{};
  EXPECT_EQ(get_event(none), EAGAIN);
  now_ += std::chrono::milliseconds(1);
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kAddrError));
  EXPECT_EQ(static_cast<std::int32_t>(event.status), -ETIMEDOUT);
}

/// One more device of the process, with an address of its own; both have link-local ones.
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
    manager_ = *Manager::create(
        ports, memory_,
        {.port_numbers = numbers_,
         .is_member = [](const driver::Gid& gid) { return gid == kOwn || gid.is_link_local(); },
         .is_local = [](const SocketAddress&) { return true; },
         .clock = [this] { return now_; }});
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

TEST_F(RdmaCmOfTwo, WhoIsBoundToAnAddressHasTheDeviceOfIt) {
  const auto first = create(1), second = create(2);
  EXPECT_EQ(bind_to(first, kOwn, 0), 0);
  EXPECT_EQ(bind_to(second, kSecond, 0), 0);
  EXPECT_EQ(be64toh(query(first).node_guid), 1u);
  EXPECT_EQ(be64toh(query(second).node_guid), 2u);
}

TEST_F(RdmaCmOfTwo, AListenerOfOneDeviceDoesNotHearTheOther) {
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

// IETF RFC 6724 5: an address of the same kind.
TEST_F(RdmaCmOfTwo, AnIpv6PeerIsSpokenToFromAnIpv6Address) {
  const auto client = create(2);
  ask_to_resolve(client, kLinkLocal, 7471);
  ASSERT_EQ(next_type(), EventType::kAddrResolved);
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

TEST_F(RdmaCm, AListenerThatGoesRejectsWhoWaits) {
  const auto listener = listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  work();
  EXPECT_EQ(destroy(listener), 0u) << "nobody has read of it";
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kRejected));
  EXPECT_EQ(event.status, 28u);
}

// ucma of Linux: a request beyond the backlog is not heard, and its sender asks again.
TEST_F(RdmaCm, NoMoreRequestsWaitThanTheProgramWants) {
  const auto listener = create(1);
  ASSERT_EQ(bind(listener, 7471), 0);
  ASSERT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = listener, .backlog = 2}), 0);
  for (std::uint64_t uid = 2; uid != 5; ++uid) {
    const auto client = create(uid);
    resolve(client, 7471);
    connect(client, "");
  }
  work();
  EXPECT_EQ(next_type(), EventType::kConnectRequest);
  EXPECT_EQ(next_type(), EventType::kConnectRequest);
  rdma_ucm_event_resp none{};
  work();
  EXPECT_EQ(get_event(none), EAGAIN) << "two were to wait";
  now_ += std::chrono::milliseconds(500);
  EXPECT_EQ(next_type(), EventType::kConnectRequest) << "those were read, and it asks again";
}

TEST_F(RdmaCm, NoMoreDatagramRequestsWaitThanTheProgramWants) {
  const auto listener = create(1, RDMA_PS_UDP);
  ASSERT_EQ(bind(listener, 7471), 0);
  ASSERT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = listener, .backlog = 1}), 0);
  for (std::uint64_t uid = 2; uid != 4; ++uid) {
    const auto client = create(uid, RDMA_PS_UDP);
    resolve(client, 7471);
    connect(client, "");
  }
  work();
  EXPECT_EQ(next_type(), EventType::kConnectRequest);
  const auto refused = next();
  EXPECT_EQ(refused.event, static_cast<std::uint32_t>(EventType::kUnreachable));
  EXPECT_EQ(static_cast<std::int32_t>(refused.status), -2);
}

// cma_iboe_set_mgid of Linux: an IPv4 group is ::ffff:a.b.c.d on RoCE v2.
TEST_F(RdmaCm, AGroupIsJoinedByItsAddressAndLeft) {
  const auto id = create(1, RDMA_PS_UDP);
  ASSERT_EQ(bind(id, 0), 0);
  rdma_ucm_create_id_resp made{};
  rdma_ucm_join_mcast in{};
  in.response = reinterpret_cast<std::uint64_t>(&made);
  in.uid = 77;
  in.id = id;
  in.addr_size = sizeof(sockaddr_in);
  const auto join = [&](std::uint8_t first) {
    const auto group = SocketAddress::of(driver::Gid::from_ipv4(first, 1, 2, 3), 0);
    std::memcpy(&in.addr, &group.storage, sizeof in.addr);
    return command(RDMA_USER_CM_CMD_JOIN_MCAST, in);
  };
  EXPECT_EQ(join(198), EINVAL) << "no group";
  ASSERT_EQ(join(239), 0);
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kMulticastJoin));
  EXPECT_EQ(event.uid, 77u);
  EXPECT_EQ(event.id, made.id);
  EXPECT_EQ(event.param.ud.qp_num, 0xffffffu);
  const auto group = driver::Gid::from_ipv4(239, 1, 2, 3);
  EXPECT_EQ(std::memcmp(event.param.ud.ah_attr.grh.dgid, group.bytes.data(), 16), 0);
  // The library waits until it has heard of as many events as are reported.
  rdma_ucm_destroy_id_resp left{};
  const rdma_ucm_destroy_id leave{
      .response = reinterpret_cast<std::uint64_t>(&left), .id = made.id, .reserved = 0};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), 0);
  EXPECT_EQ(left.events_reported, 1u);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), ENOENT);
  ASSERT_EQ(join(239), 0);
  EXPECT_EQ(destroy(id), 1u) << "what nobody has read is taken back";
}

TEST_F(RdmaCm, TheTimeoutThatAProgramWantsIsThatOfItsQp) {
  const auto listener = listen(1, 7000);
  const auto id = create(2);
  resolve(id, 7000);
  const auto set = [&](std::uint8_t timeout) {
    rdma_ucm_set_option in{};
    in.optval = reinterpret_cast<std::uint64_t>(&timeout);
    in.id = id;
    in.level = RDMA_OPTION_ID;
    in.optname = RDMA_OPTION_ID_ACK_TIMEOUT;
    in.optlen = 1;
    return command(RDMA_USER_CM_CMD_SET_OPTION, in);
  };
  EXPECT_EQ(set(32), EINVAL) << "five bits";
  EXPECT_EQ(set(21), 0);
  ib_uverbs_qp_attr attributes{};
  const rdma_ucm_init_qp_attr in{
      .response = reinterpret_cast<std::uint64_t>(&attributes), .id = id, .qp_state = 3};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_INIT_QP_ATTR, in), 0);
  EXPECT_EQ(attributes.timeout, 21);
  destroy(id);
  destroy(listener);
}

TEST_F(RdmaCm, ADatagramServiceTellsItsQp) {
  listen(1, 7174, RDMA_PS_UDP);
  const auto client = create(2, RDMA_PS_UDP);
  resolve(client, 7174);
  connect(client, "who");
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_STREQ(reinterpret_cast<const char*>(request.param.ud.private_data), "who");
  ASSERT_EQ(accept(request.id, 3, false), 0);
  const auto answer = next();
  ASSERT_EQ(answer.event, static_cast<std::uint32_t>(EventType::kEstablished));
  EXPECT_EQ(answer.param.ud.qp_num, 0x200u);
  EXPECT_EQ(answer.param.ud.qkey, 0x01234567u);
}

// IBTA 12.11: a SIDR_REQ is repeated until it is answered.
TEST_F(RdmaCm, AnAnswerThatWasLostIsGivenAgain) {
  listen(1, 7174, RDMA_PS_UDP);
  const auto client = create(2, RDMA_PS_UDP);
  resolve(client, 7174);
  connect(client, "who");
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  program_.knows_macs = false;
  ASSERT_EQ(accept(request.id, 3, false), 0);
  program_.knows_macs = true;
  rdma_ucm_event_resp none{};
  EXPECT_EQ(get_event(none), EAGAIN);
  now_ += std::chrono::milliseconds(500);
  EXPECT_EQ(next_type(), EventType::kEstablished);
}

}  // namespace
}  // namespace softhca::rdma_cm
