// Twenty clients of one process connect to a listener with a backlog of one request. All of them
// are accepted in the end, since their retries are spread over time.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr unsigned kClients = 20;
constexpr int kPatience = 60'000;  ///< milliseconds

void expect(bool good, const char* what) {
  if (good) return;
  std::printf("%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

sockaddr_in address(in_addr_t host) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(7471);
  to.sin_addr.s_addr = htonl(host);
  return to;
}

rdma_conn_param param() {
  rdma_conn_param out{};
  out.qp_num = 77;
  out.retry_count = 7;
  return out;
}

rdma_cm_event_type next(rdma_event_channel* channel, rdma_cm_id*& id) {
  rdma_cm_event* event = nullptr;
  expect(::rdma_get_cm_event(channel, &event) == 0, "event");
  const auto type = event->event;
  id = event->id;
  ::rdma_ack_cm_event(event);
  return type;
}

void serve(int ready) {
  auto* const channel = ::rdma_create_event_channel();
  rdma_cm_id *listener = nullptr, *id = nullptr;
  expect(::rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) == 0, "identifier");
  auto at = address(INADDR_ANY);
  expect(::rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&at)) == 0, "bind");
  expect(::rdma_listen(listener, 1) == 0, "listen");
  expect(::write(ready, "", 1) == 1, "write");
  for (unsigned established = 0; established != kClients;) {
    const auto type = next(channel, id);
    auto with = param();
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) expect(::rdma_accept(id, &with) == 0, "accept");
    established += type == RDMA_CM_EVENT_ESTABLISHED ? 1 : 0;
  }
}

unsigned ask() {
  auto* const channel = ::rdma_create_event_channel();
  std::array<rdma_cm_id*, kClients> ids{};
  rdma_cm_id* id = nullptr;
  auto to = address(INADDR_LOOPBACK);
  for (auto& one : ids) {
    expect(::rdma_create_id(channel, &one, nullptr, RDMA_PS_TCP) == 0, "identifier");
    expect(::rdma_resolve_addr(one, nullptr, reinterpret_cast<sockaddr*>(&to), kPatience) == 0,
           "address");
    expect(next(channel, id) == RDMA_CM_EVENT_ADDR_RESOLVED, "no address");
    expect(::rdma_resolve_route(one, kPatience) == 0, "route");
    expect(next(channel, id) == RDMA_CM_EVENT_ROUTE_RESOLVED, "no route");
  }
  for (auto* one : ids) {
    auto with = param();
    expect(::rdma_connect(one, &with) == 0, "connect");
  }
  unsigned established = 0;
  for (unsigned i = 0; i != kClients; ++i) {
    if (next(channel, id) != RDMA_CM_EVENT_CONNECT_RESPONSE) continue;
    expect(::rdma_establish(id) == 0, "establish");
    ++established;
  }
  return established;
}

}  // namespace

int main() {
  int ready[2];
  expect(::pipe(ready) == 0, "pipe");
  const auto server = ::fork();
  if (server == 0) {
    serve(ready[1]);
    return 0;
  }
  ::close(ready[1]);
  char byte;
  expect(::read(ready[0], &byte, 1) == 1, "server");
  std::printf("%u established\n", ask());
  ::waitpid(server, nullptr, 0);
  return 0;
}
