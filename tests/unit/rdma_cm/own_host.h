// A host that connects to itself, with real management datagrams that its device loops back.
#pragma once

#include <endian.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "rdma_cm/manager.h"
#include "uverbs/program.h"

namespace softhca::rdma_cm {

inline const driver::Gid kOwn = driver::Gid::from_ipv4(198, 18, 0, 1);
inline const driver::Gid kGuest = driver::Gid::from_ipv4(198, 19, 0, 1);
/// Another machine, whose programs have addresses of their own.
inline const driver::Gid kMachine = driver::Gid::from_ipv4(10, 9, 0, 2);
/// The same machine by IPv6, and the program there.
inline const driver::Gid kMachine6{
    {std::byte{0xfd}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::byte{2}}};
inline const driver::Gid kProgram6{{std::byte{0xfe},
                                    std::byte{0x80},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    {},
                                    std::byte{2}}};

class Numbers final : public PortNumbers {
 public:
  Errno claim(std::uint16_t space, std::uint16_t port, const driver::Gid&, bool) override {
    return used.insert({space, port}).second ? 0 : EADDRINUSE;
  }
  void release(std::uint16_t space, std::uint16_t port, bool) override {
    used.erase({space, port});
  }
  std::optional<driver::Gid> find(std::uint16_t, std::uint16_t) override { return kOwn; }
  PortRange free_numbers() const override { return range; }
  std::set<std::pair<std::uint16_t, std::uint16_t>> used;
  PortRange range;
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
               return gid == kOwn || (gid == kGuest && guest_is_known_) ||
                      (gid == kProgram6 && program6_is_known_);
             },
         .is_local =
             [](const SocketAddress& address) {
               return address.gid() != kGuest && address.gid() != kMachine &&
                      address.gid() != kMachine6 && address.gid() != kProgram6;
             },
         .ask = [this](const driver::Gid& gid) { asked_.push_back(gid); },
         .ask_service =
             [this](const SocketAddress& to, std::uint16_t space) {
               asked_services_.emplace_back(to.gid(), space, to.port());
             },
         .find_service =
             [this](const SocketAddress& to, std::uint16_t) {
               return to.gid() == kMachine || to.gid() == kMachine6 ? owner_ : std::nullopt;
             },
         .forget_service = [this](const SocketAddress&, std::uint16_t) { owner_.reset(); },
         .on_unresolved = [this](const driver::Gid& gid) { unresolved_.push_back(gid); },
         .path_mtu = [](const driver::Gid& gid) -> std::uint8_t { return gid == kGuest ? 3 : 5; },
         .is_gone =
             {.address = [this](const driver::Gid&) { return ++looked_for_gone_, peer_is_gone_; },
              .number = [this](const driver::Gid&,
                               std::uint32_t number) { return number >> 24 == gone_block_; }},
         .on_listen =
             [this](const ListenerService& one) {
               if (listens_refused_) return false;
               listened_.push_back(one);
               return true;
             },
         .on_unlisten = [this](const ListenerService& one) { unlistened_.push_back(one); }});
    channel_ = *manager_->open();
  }

  template <class Payload>
  Errno command(std::uint32_t number, const Payload& payload) {
    std::vector<std::byte> bytes(sizeof(rdma_ucm_cmd_hdr) + sizeof payload);
    const rdma_ucm_cmd_hdr header{.cmd = number, .in = sizeof payload, .out = room_};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &payload, sizeof payload);
    return manager_->serve(
        *channel_, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(),
        [this](int) { return named_; }, now_);
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
  /// An identifier of uid 1 for QPs of a type.
  std::uint32_t create_of(std::uint16_t space, std::uint8_t qp_type) {
    rdma_ucm_create_id_resp out{};
    rdma_ucm_create_id in{};
    in.uid = 1;
    in.response = reinterpret_cast<std::uint64_t>(&out);
    in.ps = space;
    in.qp_type = qp_type;
    EXPECT_EQ(command(RDMA_USER_CM_CMD_CREATE_ID, in), 0);
    return out.id;
  }
  Errno bind(std::uint32_t id, std::uint16_t port, const driver::Gid& to = kOwn) {
    rdma_ucm_bind in{};
    in.id = id;
    const auto address = SocketAddress::of(to, port);
    in.addr_size = address.size();
    std::memcpy(&in.addr, &address.storage, sizeof in.addr);
    return command(RDMA_USER_CM_CMD_BIND, in);
  }
  template <class Value>
  Errno set_option(std::uint32_t id, std::uint32_t name, const Value& value) {
    rdma_ucm_set_option in{};
    in.optval = reinterpret_cast<std::uint64_t>(&value);
    in.id = id;
    in.level = RDMA_OPTION_ID;
    in.optname = name;
    in.optlen = sizeof value;
    return command(RDMA_USER_CM_CMD_SET_OPTION, in);
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
    EXPECT_EQ(next_type(), EventType::kAddrResolved);
    resolve_route(id);
  }
  void resolve_route(std::uint32_t id) {
    EXPECT_EQ(
        command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{.id = id, .timeout_ms = 1}),
        0);
    EXPECT_EQ(next_type(), EventType::kRouteResolved);
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
  /// A client and its peer, the identifier that the listener got: uid 20 and 30.
  std::pair<std::uint32_t, std::uint32_t> establish(std::uint16_t port) {
    const auto client = create(20);
    resolve(client, port);
    connect(client, "");
    const auto request = next();
    EXPECT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
    EXPECT_EQ(accept(request.id, 30, false), 0);
    EXPECT_EQ(next_type(), EventType::kConnectResponse);
    EXPECT_EQ(accept(client, 20, true), 0);
    EXPECT_EQ(next_type(), EventType::kEstablished);
    return {client, request.id};
  }
  Errno disconnect(std::uint32_t id) {
    return command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = id});
  }
  Errno get_event(rdma_ucm_event_resp& out) {
    rdma_ucm_get_event in{.response = reinterpret_cast<std::uint64_t>(&out)};
    return command(RDMA_USER_CM_CMD_GET_EVENT, in);
  }
  /// Delivers everything in flight.
  void work() {
    for (int i = 0; i != 50; ++i) {
      program_.device().hca().host().progress();
      program_.device().poll_events();
      manager_->tick(now_);
    }
  }
  /// The next event, or an event of type 99 if there is none.
  rdma_ucm_event_resp next() {
    rdma_ucm_event_resp out{};
    for (int i = 0; i != 1000; ++i) {
      if (get_event(out) == 0) return out;
      program_.device().hca().host().progress();
      program_.device().poll_events();
      manager_->tick(now_);
    }
    out.event = 99;
    return out;
  }
  /// True if nothing is in flight and no event is pending.
  bool is_quiet() {
    work();
    rdma_ucm_event_resp none{};
    return get_event(none) == EAGAIN;
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
  std::uint32_t gone_block_ = 0;
  bool listens_refused_ = false;
  std::vector<ListenerService> listened_, unlistened_;
  unsigned looked_for_gone_ = 0;
  std::vector<driver::Gid> asked_;
  std::vector<driver::Gid> unresolved_;
  std::vector<std::tuple<driver::Gid, std::uint16_t, std::uint16_t>> asked_services_;
  std::optional<driver::Gid> owner_;  ///< of all services of kMachine and kMachine6
  bool program6_is_known_ = false;
  util::Time now_{std::chrono::hours(1)};
  std::unique_ptr<Manager> manager_;
  Channel* channel_;
  std::uint16_t room_ = 0xffff;  ///< bytes for the answers to commands
  Channel* named_ = nullptr;     ///< the channel that every descriptor in a command refers to
};

}  // namespace softhca::rdma_cm
