// Calls of librdmacm that signals interrupt, or that are made without privileges: they restart and
// fail as the kernel's own calls do.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr int kSignals = 20;
/// Posted once for each signal.
sem_t signals;

void expect(bool good, const char* what) {
  if (good) return;
  std::printf("%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void ring(int) { ::sem_post(&signals); }

void ring_every_5_ms(int flags) {
  struct sigaction action{};
  action.sa_handler = ring;
  action.sa_flags = flags;
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 5000}, {0, 5000}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
}

void resolve(rdma_cm_id* id) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(7471);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  expect(::rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 60'000) == 0,
         "resolve");
}

/// Waits for the first event of `id` while many signals arrive.
rdma_cm_event_type wait_beside_signals(rdma_event_channel* channel, rdma_cm_id* id) {
  std::thread later([&] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    for (int left = kSignals; left != 0; --left) {
      while (::sem_wait(&signals) != 0) {
      }
    }
    resolve(id);
  });
  rdma_cm_event* event = nullptr;
  expect(::rdma_get_cm_event(channel, &event) == 0, "a call that is to be restarted");
  const auto type = event->event;
  ::rdma_ack_cm_event(event);
  later.join();
  return type;
}

}  // namespace

int main() {
  expect(::sem_init(&signals, 0, 0) == 0, "semaphore");
  auto* const channel = ::rdma_create_event_channel();
  expect(channel != nullptr, "channel");
  rdma_cm_id* id = nullptr;
  expect(::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "identifier");

  ring_every_5_ms(SA_RESTART);
  expect(wait_beside_signals(channel, id) == RDMA_CM_EVENT_ADDR_RESOLVED, "event");
  std::printf("restarted\n");

  ring_every_5_ms(0);
  rdma_cm_event* event = nullptr;
  expect(::rdma_get_cm_event(channel, &event) == -1 && errno == EINTR, "a call that is to end");
  std::printf("interrupted\n");
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);

  if (::geteuid() == 0) expect(::setresuid(65534, 65534, 65534) == 0, "setresuid");
  rdma_cm_id* other = nullptr;
  expect(::rdma_create_id(channel, &other, nullptr, RDMA_PS_TCP) == 0, "identifier");
  resolve(other);
  expect(::rdma_get_cm_event(channel, &event) == 0, "an event without privileges");
  ::rdma_ack_cm_event(event);
  pollfd at{.fd = channel->fd, .events = POLLIN, .revents = 0};
  expect(::poll(&at, 1, 0) == 0, "a channel without events");
  std::printf("unprivileged\n");
  return 0;
}
