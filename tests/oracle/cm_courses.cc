// Chapter cm_courses: the events of connecting, accepting, rejecting, disconnecting and dying, in
// order, with private data of each size. The chapter long_runs covers every size.
#include <arpa/inet.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "cm.h"

namespace oracle {
namespace {

/// Connects without QPs, because private data need none.
rdma_conn_param with_data(std::vector<std::uint8_t>& data, rdma_conn_param of = parameters()) {
  of.private_data = data.data();
  of.private_data_len = static_cast<std::uint8_t>(data.size());
  of.qp_num = 0x123;
  return of;
}

struct Ends {
  rdma_cm_id* client;
  rdma_cm_id* server;
};

/// Connects with `asked` bytes. Prints the server's end and its event as lines under `name`.
Ends ask(Cm& cm, rdma_cm_id* listener, rdma_port_space space, std::size_t asked,
         const std::string& name) {
  auto* const client = cm.resolved(port_of(listener), space);
  auto data = pattern(asked);
  auto param = with_data(data);
  const auto type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
  need(make_qp(client, type) == 0, "QP");
  if (did(name, [&] { return rdma_connect(client, &param); }) != 0) return {client, nullptr};
  const auto request = cm.event(name);
  return {client, request.kind == RDMA_CM_EVENT_CONNECT_REQUEST ? request.id : nullptr};
}

void destroy(rdma_cm_id* id) {
  if (id == nullptr) return;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

void private_data(rdma_port_space space, const std::vector<int>& asks,
                  const std::vector<int>& gives, const std::vector<int>& rejects) {
  Cm cm;
  auto* const listener = cm.listener(space);
  const auto type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
  for (const int size : asks) {
    const auto ends = ask(cm, listener, space, size, text("connect %d", size));
    if (ends.server != nullptr) {
      rdma_reject(ends.server, nullptr, 0);
      cm.event(text("connect %d, rejected", size));
    }
    destroy(ends.server), destroy(ends.client);
  }
  for (const int size : gives) {
    const auto ends = ask(cm, listener, space, 0, text("accept %d, asked", size));
    need(ends.server != nullptr, "request");
    need(make_qp(ends.server, type) == 0, "QP");
    auto data = pattern(size);
    auto param = with_data(data);
    if (did(text("accept %d", size), [&] { return rdma_accept(ends.server, &param); }) == 0) {
      cm.event(text("accept %d", size));
      if (space != RDMA_PS_UDP) {
        cm.event(text("accept %d", size));
        rdma_disconnect(ends.client), rdma_disconnect(ends.server);
        cm.event(""), cm.event("");
      }
    } else if (space != RDMA_PS_UDP) {
      did(text("accept %d, then reject", size),
          [&] { return rdma_reject(ends.server, nullptr, 0); });
      cm.event(text("accept %d, then", size));
    } else {
      cm.event(text("accept %d, then", size));
    }
    destroy(ends.server), destroy(ends.client);
  }
  for (const int size : rejects) {
    const auto ends = ask(cm, listener, space, 0, text("reject %d, asked", size));
    need(ends.server != nullptr, "request");
    auto data = pattern(size);
    const auto length = static_cast<std::uint8_t>(size);
    if (did(text("reject %d", size),
            [&] { return rdma_reject(ends.server, data.data(), length); }) != 0)
      rdma_reject(ends.server, nullptr, 0);
    cm.event(text("reject %d", size));
    destroy(ends.server), destroy(ends.client);
  }
}

std::vector<int> up_to(int last, int step = 1) {
  std::vector<int> all;
  for (int size = 0; size <= last; size += step) all.push_back(size);
  return all;
}

/// The QP of each end, as the connection manager configured it.
void qps_after(Cm& cm, rdma_conn_param asked, rdma_conn_param given, const std::string& name) {
  Connection connection(cm, asked, given);
  for (auto* const id : {connection.client, connection.server}) {
    ibv_qp_attr a{};
    ibv_qp_init_attr in{};
    ibv_query_qp(id->qp, &a, 0x1fffff, &in);
    const auto of = name + (id == connection.client ? ", client's QP" : ", server's QP");
    line(of, text("%s, mtu %d, rd %u/%u, timeout %u, retry %u/%u, rnr timer %u, access 0x%x",
                  state_name(a.qp_state), a.path_mtu, a.max_rd_atomic, a.max_dest_rd_atomic,
                  a.timeout, a.retry_cnt, a.rnr_retry, a.min_rnr_timer, a.qp_access_flags));
    line(of + "'s path",
         text("index %u, hops %u, class %u, sl %u, rate %u, port %u", a.ah_attr.grh.sgid_index,
              a.ah_attr.grh.hop_limit, a.ah_attr.grh.traffic_class, a.ah_attr.sl,
              a.ah_attr.static_rate, a.ah_attr.port_num));
  }
  rdma_disconnect(connection.client), rdma_disconnect(connection.server);
  cm.event(name + ", disconnected"), cm.event(name + ", disconnected");
  destroy(connection.server), destroy(connection.client), destroy(connection.listener);
}

/// The data that the listener gets from `asked`, and the client from the rejection.
void ask_and_reject(Cm& cm, rdma_conn_param asked, const std::string& name) {
  auto* const listener = cm.listener();
  auto* const client = cm.resolved(port_of(listener));
  need(make_qp(client) == 0, "QP");
  if (did(name, [&] { return rdma_connect(client, &asked); }) == 0) {
    const auto request = cm.event(name);
    rdma_reject(request.id, nullptr, 0);
    cm.event(name);
    destroy(request.id);
  }
  destroy(client), destroy(listener);
}

void say_id(const std::string& name, rdma_cm_id* id) {
  const auto& route = id->route;
  line(name, text("device %s, port %u, paths %d, pkey 0x%x, family %d/%d, type %d, space 0x%x",
                  id->verbs ? "there" : "none", id->port_num, route.num_paths,
                  be16toh(route.addr.addr.ibaddr.pkey), rdma_get_local_addr(id)->sa_family,
                  rdma_get_peer_addr(id)->sa_family, id->qp_type, id->ps));
}

}  // namespace

ORACLE_CASE(cm_courses, private_data, 180) {
  private_data(RDMA_PS_TCP, {0, 1, 8, 55, 56, 57, 91, 92, 255}, {0, 1, 195, 196, 197, 204, 255},
               {0, 1, 147, 148, 149, 255});
}
ORACLE_CASE(cm_courses, private_data_ud, 180) {
  private_data(RDMA_PS_UDP, {0, 1, 179, 180, 181, 216, 255}, {0, 1, 135, 136, 137, 255},
               {0, 1, 135, 136, 137, 255});
}
ORACLE_CASE(long_runs, connect, 600) { private_data(RDMA_PS_TCP, up_to(60), {}, {}); }
ORACLE_CASE(long_runs, accept, 600) { private_data(RDMA_PS_TCP, {}, up_to(255), {}); }
ORACLE_CASE(long_runs, reject, 600) { private_data(RDMA_PS_TCP, {}, {}, up_to(255)); }
ORACLE_CASE(long_runs, connect_ud, 600) { private_data(RDMA_PS_UDP, up_to(255), {}, {}); }
ORACLE_CASE(long_runs, accept_ud, 600) { private_data(RDMA_PS_UDP, {}, up_to(140), {}); }
ORACLE_CASE(long_runs, reject_ud, 600) { private_data(RDMA_PS_UDP, {}, {}, up_to(140)); }
ORACLE_CASE(cm_courses, values, 120) {
  Cm cm;
  for (const unsigned depth : {0u, 1u, 3u, 16u, 17u, 255u}) {
    auto asked = parameters();
    asked.initiator_depth = asked.responder_resources = static_cast<std::uint8_t>(depth);
    ask_and_reject(cm, asked, text("depth %u", depth));
  }
  for (const unsigned count : {0u, 7u, 8u, 255u}) {
    auto asked = parameters();
    asked.retry_count = asked.rnr_retry_count = static_cast<std::uint8_t>(count);
    asked.flow_control = asked.srq = static_cast<std::uint8_t>(count);
    ask_and_reject(cm, asked, text("counts %u", count));
  }
}
ORACLE_CASE(cm_courses, qps, 120) {
  Cm cm;
  auto odd = parameters();
  odd.initiator_depth = 3;
  odd.responder_resources = 5;
  odd.retry_count = 3;
  odd.rnr_retry_count = 2;
  rdma_conn_param zero{};
  qps_after(cm, parameters(), parameters(), "usual");
  qps_after(cm, odd, parameters(), "odd");
  qps_after(cm, parameters(), odd, "odd server");
  qps_after(cm, zero, zero, "zero");
}
ORACLE_CASE(cm_courses, type_of_service, 120) {
  Cm cm;
  auto* const listener = cm.listener();
  auto* const client = cm.resolved(port_of(listener), RDMA_PS_TCP, false);
  std::uint8_t tos = 104, timeout = 12;
  did("TOS", [&] { return rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1); });
  did("ACK_TIMEOUT", [&] {
    return rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1);
  });
  need(rdma_resolve_route(client, 1000) == 0, "route");
  cm.event("route");
  need(make_qp(client) == 0, "QP");
  auto asked = parameters();
  need(rdma_connect(client, &asked) == 0, "connect");
  const auto request = cm.event("request");
  need(make_qp(request.id) == 0, "QP");
  need(rdma_accept(request.id, &asked) == 0, "accept");
  cm.event(""), cm.event("");
  for (auto* const id : {client, request.id}) {
    ibv_qp_attr a{};
    ibv_qp_init_attr in{};
    ibv_query_qp(id->qp, &a, 0x1fffff, &in);
    line(id == client ? "client" : "server",
         text("class %u, timeout %u", a.ah_attr.grh.traffic_class, a.timeout));
  }
}
ORACLE_CASE(cm_courses, identifiers) {
  Cm cm;
  auto* const listener = cm.listener();
  say_id("listener", listener);
  auto* const fresh = cm.id();
  line("fresh", text("%s, type %d", fresh->verbs ? "a device" : "no device", fresh->qp_type));
  auto* const resolved = cm.resolved(port_of(listener), RDMA_PS_TCP, false);
  say_id("resolved", resolved);
  Connection connection(cm);
  say_id("client", connection.client);
  say_id("server", connection.server);
  auto* const datagram = cm.resolved(port_of(cm.listener(RDMA_PS_UDP)), RDMA_PS_UDP);
  say_id("UD", datagram);
}
ORACLE_CASE(cm_courses, disconnect_both, 90) {
  Cm cm;
  Connection connection(cm);
  did("client", [&] { return rdma_disconnect(connection.client); });
  for (int i = 0; i != 1; ++i) {
    const auto event = cm.event("");
    line(event.id == connection.client ? "client sees" : "server sees", describe(event));
  }
  cm.silence("before the server does");
  did("server", [&] { return rdma_disconnect(connection.server); });
  const auto event = cm.event("");
  line(event.id == connection.client ? "client sees" : "server sees", describe(event));
  did("client again", [&] { return rdma_disconnect(connection.client); });
  did("server again", [&] { return rdma_disconnect(connection.server); });
}
ORACLE_CASE(cm_courses, destroyed_client, 90) {
  Cm cm;
  Connection connection(cm);
  destroy(connection.client);
  cm.event("server sees");
}
ORACLE_CASE(cm_courses, destroyed_server, 90) {
  Cm cm;
  Connection connection(cm);
  destroy(connection.server);
  cm.event("client sees");
}
ORACLE_CASE(cm_courses, no_listener, 90) {
  Cm cm;
  for (const auto space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    auto* const client = cm.resolved(7999, space);
    auto asked = parameters();
    asked.qp_num = 0x123;
    did("connect", [&] { return rdma_connect(client, &asked); });
    cm.event(space == RDMA_PS_TCP ? "TCP" : "UDP", 30);
    did("connect again", [&] { return rdma_connect(client, &asked); });
  }
}
ORACLE_CASE(cm_courses, gone_before_answer, 90) {
  Cm cm;
  auto* const listener = cm.listener();
  for (const bool accepts : {true, false}) {
    auto* const client = cm.resolved(port_of(listener));
    need(make_qp(client) == 0, "QP");
    auto asked = parameters();
    need(rdma_connect(client, &asked) == 0, "connect");
    const auto request = cm.event("request");
    need(make_qp(request.id) == 0, "QP");
    destroy(client);
    ::usleep(200000);
    if (accepts)
      did("accept", [&] { return rdma_accept(request.id, &asked); });
    else
      did("reject", [&] { return rdma_reject(request.id, nullptr, 0); });
    cm.silence("then");
    destroy(request.id);
  }
}
ORACLE_CASE(cm_courses, backlog, 120) {
  Cm cm;
  auto* const listener = cm.listener(RDMA_PS_TCP, 2);
  for (int i = 0; i != 4; ++i) {
    auto* const client = cm.resolved(port_of(listener));
    auto asked = parameters();
    asked.qp_num = static_cast<std::uint32_t>(0x100 + i);
    did("connect", [&] { return rdma_connect(client, &asked); });
    const auto event = cm.event(text("client %d", i), 3);
    if (event.kind != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    did("reject", [&] { return rdma_reject(event.id, nullptr, 0); });
    cm.event("rejected");
  }
}
ORACLE_CASE(cm_courses, establish, 90) {
  Cm cm;
  auto* const listener = cm.listener();
  const auto ends = ask(cm, listener, RDMA_PS_TCP, 4, "connect");
  need(ends.server != nullptr, "request");
  auto given = parameters();
  given.qp_num = 0x321;
  did("accept", [&] { return rdma_accept(ends.server, &given); });
  for (int i = 0; i != 2; ++i) cm.event("event", 3);
}
ORACLE_CASE(cm_courses, without_qp, 90) {
  Cm cm;
  auto* const listener = cm.listener();
  auto* const client = cm.resolved(port_of(listener));
  auto asked = parameters();
  asked.qp_num = 0x123;
  did("connect", [&] { return rdma_connect(client, &asked); });
  const auto request = cm.event("request");
  auto given = parameters();
  given.qp_num = 0x321;
  did("accept", [&] { return rdma_accept(request.id, &given); });
  cm.event("client");
  cm.silence("before establish");
  did("establish", [&] { return rdma_establish(client); });
  cm.event("server");
}
// Linux goes on repeating the first reply for a minute, and blocks the identifier meanwhile.
ORACLE_CASE(long_runs, accept_twice, 240) {
  Cm cm;
  auto* const listener = cm.listener();
  auto* const client = cm.resolved(port_of(listener));
  auto asked = parameters();
  asked.qp_num = 0x123;
  did("connect", [&] { return rdma_connect(client, &asked); });
  const auto request = cm.event("request");
  auto given = parameters();
  given.qp_num = 0x321;
  did("accept", [&] { return rdma_accept(request.id, &given); });
  cm.event("client");
  did("accept again", [&] { return rdma_accept(request.id, &given); });
  cm.event("client");
  did("establish", [&] { return rdma_establish(client); });
  cm.silence("then");
}
/// The options of the other end's maker.
void say_ece(const std::string& name, rdma_cm_id* id) {
  ibv_ece got{};
  did(name, [&] { return rdma_get_remote_ece(id, &got); });
  line(name, text("vendor 0x%x, options 0x%x", got.vendor_id, got.options));
}
ORACLE_CASE(cm_courses, ece, 90) {
  Cm cm;
  auto* const listener = cm.listener();
  auto* const client = cm.resolved(port_of(listener));
  ibv_ece own{0x15b3, 0x89abcdef, 0};
  did("client sets", [&] { return rdma_set_local_ece(client, &own); });
  auto asked = parameters();
  asked.qp_num = 0x123;
  did("connect", [&] { return rdma_connect(client, &asked); });
  const auto request = cm.event("request");
  need(request.id != nullptr, "request");
  say_ece("server", request.id);
  own.options = 7;
  did("server sets", [&] { return rdma_set_local_ece(request.id, &own); });
  auto given = parameters();
  given.qp_num = 0x321;
  did("accept", [&] { return rdma_accept(request.id, &given); });
  cm.event("client");
  say_ece("client", client);
}
ORACLE_CASE(cm_courses, multicast, 90) {
  Cm cm;
  for (const auto* const group : {"239.1.2.3", "224.0.0.1", "255.255.255.255", "10.1.1.1",
                                  "ff0e::1:2", "ff12:401b:ffff::1", "0.0.0.0", "::"}) {
    auto* const id = cm.id(RDMA_PS_UDP);
    Address here(kHere, 0), to(group, 0);
    need(rdma_bind_addr(id, here.get()) == 0, "bind");
    need(make_qp(id, IBV_QPT_UD) == 0, "QP");
    if (did(text("join %s", group), [&] { return rdma_join_multicast(id, to.get(), nullptr); }) !=
        0)
      continue;
    cm.event(text("join %s", group), 5);
    did(text("join %s again", group), [&] { return rdma_join_multicast(id, to.get(), nullptr); });
    did(text("leave %s", group), [&] { return rdma_leave_multicast(id, to.get()); });
    did(text("leave %s again", group), [&] { return rdma_leave_multicast(id, to.get()); });
  }
}
ORACLE_CASE(cm_courses, migrate, 90) {
  Cm cm, other;
  Connection connection(cm);
  did("migrate", [&] { return rdma_migrate_id(connection.server, other.channel()); });
  did("disconnect", [&] { return rdma_disconnect(connection.client); });
  other.event("server's new channel");
}
ORACLE_CASE(cm_courses, channel_file) {
  Cm cm;
  const int file = cm.channel()->fd;
  char bytes[64] = {};
  int waiting = 0;
  moved("read", [&] { return ::read(file, bytes, sizeof bytes); });
  moved("read nothing", [&] { return ::read(file, bytes, 0); });
  moved("seek", [&] { return ::lseek(file, 0, SEEK_SET); });
  did("FIONREAD", [&] { return ::ioctl(file, FIONREAD, &waiting); });
  did("sync", [&] { return ::fsync(file); });
}
ORACLE_CASE(cm_courses, synchronous, 90) {
  Cm cm;
  auto* const listener = cm.listener();
  rdma_cm_id* id = nullptr;
  did("create", [&] { return rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP); });
  Address there(kHere, port_of(listener));
  did("resolve_addr", [&] { return rdma_resolve_addr(id, nullptr, there.get(), 1000); });
  did("resolve_route", [&] { return rdma_resolve_route(id, 1000); });
  did("QP", [&] { return make_qp(id); });
}
ORACLE_CASE(cm_courses, addrinfo, 90) {
  for (const auto* const node : {kHere, kSecond, "127.0.0.1", "::1"}) {
    for (const int flags : {0, 1, 2, 4, 8}) {
      rdma_addrinfo hints{}, *found = nullptr;
      hints.ai_flags = flags;
      hints.ai_port_space = RDMA_PS_TCP;
      std::string name(node), port("7471");
      const int got = rdma_getaddrinfo(name.data(), port.data(), &hints, &found);
      line(text("%s, flags %d", node, flags),
           got != 0 ? text("%d", got)
                    : text("0: family %d, type %d, space 0x%x, source %u, destination %u",
                           found->ai_family, found->ai_qp_type, found->ai_port_space,
                           found->ai_src_len, found->ai_dst_len));
      if (got == 0) rdma_freeaddrinfo(found);
    }
  }
}
ORACLE_CASE(cm_courses, killed_client, 90) {
  int ends[2];
  need(::pipe(ends) == 0, "pipe");
  // Fork before librdmacm opens the device, because what it then holds belongs to one process.
  const auto process = ::fork();
  if (process == 0) {
    int port = 0;
    if (::read(ends[0], &port, sizeof port) != sizeof port) ::_exit(1);
    Cm own;
    auto* const client = own.resolved(port);
    need(make_qp(client) == 0, "QP");
    auto asked = parameters();
    need(rdma_connect(client, &asked) == 0, "connect");
    own.event("client");
    ::kill(::getpid(), SIGKILL);
  }
  Cm cm;
  const int port = port_of(cm.listener());
  need(::write(ends[1], &port, sizeof port) == sizeof port, "write");
  const auto request = cm.event("request");
  need(request.id != nullptr && make_qp(request.id) == 0, "server's QP");
  auto given = parameters();
  did("accept", [&] { return rdma_accept(request.id, &given); });
  cm.event("server");
  ::waitpid(process, nullptr, 0);
  cm.event("after the client's death");
}

}  // namespace oracle
