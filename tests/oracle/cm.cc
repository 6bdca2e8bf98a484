#include "cm.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

namespace oracle {
namespace {

bool of_datagrams(const Event& event) {
  return event.id != nullptr && event.id->ps == RDMA_PS_UDP &&
         event.kind != RDMA_CM_EVENT_ADDR_RESOLVED;
}

void copy_data(Event& event, const void* data, std::size_t size) {
  if (data == nullptr) return;
  const auto* const bytes = static_cast<const std::uint8_t*>(data);
  event.data.assign(bytes, bytes + size);
}

/// How many of the bytes match the pattern, and whether zeros follow.
std::string describe_data(const std::vector<std::uint8_t>& data) {
  const auto expected = pattern(data.size());
  const auto end = std::mismatch(data.begin(), data.end(), expected.begin()).first;
  const bool zeros = std::all_of(end, data.end(), [](std::uint8_t one) { return one == 0; });
  return text("%zu bytes: %td of the pattern%s", data.size(), end - data.begin(),
              zeros ? "" : ", then others");
}

void wait_blocking(int file, bool blocking) {
  const int flags = ::fcntl(file, F_GETFL);
  ::fcntl(file, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

}  // namespace

Address::Address(const char* text, int port) {
  auto* const four = reinterpret_cast<sockaddr_in*>(&bytes);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&bytes);
  if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<std::uint16_t>(port));
    return;
  }
  need(inet_pton(AF_INET6, text, &six->sin6_addr) == 1, text);
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(static_cast<std::uint16_t>(port));
}

Cm::Cm() : channel_(rdma_create_event_channel()) {
  need(channel_ != nullptr, "event channel");
  wait_blocking(channel_->fd, false);
}

rdma_cm_id* Cm::id(rdma_port_space space) {
  rdma_cm_id* id = nullptr;
  need(rdma_create_id(channel_, &id, nullptr, space) == 0, "identifier");
  return id;
}

Event Cm::event(const std::string& name, int seconds) {
  Event event;
  pollfd wait{channel_->fd, POLLIN, 0};
  rdma_cm_event* got = nullptr;
  if (::poll(&wait, 1, seconds * 1000) == 1 && rdma_get_cm_event(channel_, &got) == 0) {
    event.kind = got->event;
    event.status = got->status;
    event.id = got->id;
    event.listener = got->listen_id;
    if (of_datagrams(event)) {
      event.datagram = got->param.ud;
      copy_data(event, got->param.ud.private_data, got->param.ud.private_data_len);
    } else {
      event.connection = got->param.conn;
      copy_data(event, got->param.conn.private_data, got->param.conn.private_data_len);
    }
    rdma_ack_cm_event(got);
  }
  if (!name.empty()) line(name, describe(event));
  return event;
}

void Cm::silence(const std::string& name, int milliseconds) {
  pollfd wait{channel_->fd, POLLIN, 0};
  if (::poll(&wait, 1, milliseconds) == 0)
    line(name, "nothing comes");
  else
    event(name);
}

rdma_cm_id* Cm::listener(rdma_port_space space, int backlog) {
  auto* const made = id(space);
  Address here(kHere, 0);
  need(rdma_bind_addr(made, here.get()) == 0, "bind");
  need(rdma_listen(made, backlog) == 0, "listen");
  return made;
}

rdma_cm_id* Cm::resolved(int port, rdma_port_space space, bool route) {
  auto* const made = id(space);
  Address there(kHere, port);
  need(rdma_resolve_addr(made, nullptr, there.get(), 2000) == 0, "resolve_addr");
  need(event("").kind == RDMA_CM_EVENT_ADDR_RESOLVED, "ADDR_RESOLVED");
  if (!route) return made;
  need(rdma_resolve_route(made, 2000) == 0, "resolve_route");
  need(event("").kind == RDMA_CM_EVENT_ROUTE_RESOLVED, "ROUTE_RESOLVED");
  return made;
}

int port_of(rdma_cm_id* id) { return ntohs(rdma_get_src_port(id)); }

std::string describe(const Event& event) {
  if (event.kind < 0) return "nothing comes";
  auto all = text("%s, status %d", rdma_event_str(static_cast<rdma_cm_event_type>(event.kind)),
                  event.status);
  if (of_datagrams(event)) {
    const auto& of = event.datagram;
    all += text(", QP %s, key 0x%x, port %u, global %u", of.qp_num != 0 ? "there" : "0", of.qkey,
                of.ah_attr.port_num, of.ah_attr.is_global);
  } else {
    const auto& of = event.connection;
    all += text(", rd %u/%u, flow %u, retry %u/%u, srq %u, QP %s", of.responder_resources,
                of.initiator_depth, of.flow_control, of.retry_count, of.rnr_retry_count, of.srq,
                of.qp_num != 0 ? "there" : "0");
  }
  return all + ", " + describe_data(event.data);
}

std::vector<std::uint8_t> pattern(std::size_t size) {
  std::vector<std::uint8_t> all(size);
  for (std::size_t i = 0; i != size; ++i) all[i] = static_cast<std::uint8_t>(i * 7 + 1);
  return all;
}

int make_qp(rdma_cm_id* id, ibv_qp_type type) {
  ibv_qp_init_attr in{};
  in.cap = {8, 8, 1, 1, 0};
  in.qp_type = type;
  return rdma_create_qp(id, nullptr, &in);
}

rdma_conn_param parameters() {
  rdma_conn_param all{};
  all.responder_resources = 3;
  all.initiator_depth = 2;
  all.flow_control = 1;
  all.retry_count = 5;
  all.rnr_retry_count = 6;
  return all;
}

Connection::Connection(Cm& cm, rdma_conn_param ask, rdma_conn_param give)
    : listener(cm.listener()), client(cm.resolved(port_of(listener))) {
  need(make_qp(client) == 0, "client's QP");
  need(rdma_connect(client, &ask) == 0, "connect");
  const auto request = cm.event("request");
  need(request.kind == RDMA_CM_EVENT_CONNECT_REQUEST, "CONNECT_REQUEST");
  server = request.id;
  need(make_qp(server) == 0, "server's QP");
  need(rdma_accept(server, &give) == 0, "accept");
  for (int i = 0; i != 2; ++i) {
    const auto up = cm.event("");
    line(up.id == client ? "client" : "server", describe(up));
  }
}

}  // namespace oracle
