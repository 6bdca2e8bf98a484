// Other calls go on during one that takes long, and while the hub or the run ends.
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "lives.h"
#include "lives_library.h"
#include "schedule.h"

namespace lives {
namespace {

/// An address that no process has is resolved for a second; other calls do not wait for that.
int asks() {
  auto* const context = open_first();
  auto* const pd = ibv_alloc_pd(context);
  std::atomic<bool> done = false;
  const Spell spell(own_thread());
  std::thread asker([&] {
    auto attributes = unknown_address();
    if (ibv_create_ah(pd, &attributes) != nullptr) std::puts("found");
    done = true;
  });
  const int file = ::memfd_create("file", MFD_CLOEXEC);
  // Writes to pipes may be commands of librdmacm now.
  expect(::rdma_create_event_channel() != nullptr, "channel");
  int ends[2];
  expect(::pipe2(ends, O_CLOEXEC) == 0, "pipe");
  int stats = 0, verbs = 0;
  while (!done) {
    char byte = 'x';
    expect(::write(ends[1], &byte, 1) == 1 && ::read(ends[0], &byte, 1) == 1, "pipe");
    struct stat status{};
    expect(::fstat(file, &status) == 0, "fstat");
    ++stats;
    ibv_device_attr device{};
    expect(ibv_query_device(context, &device) == 0, "query");
    ++verbs;
  }
  // Few calls are enough if this thread has waited for a processor most of the time.
  const bool starved = spell.undisturbed() < spell.all() / 2;
  asker.join();
  const auto many = [starved](int calls) { return calls > 100 || starved ? "many" : "few"; };
  std::printf("%s %s\n", many(stats), many(verbs));
  return 0;
}

/// Prints whether other calls of the context go on during `call`, which takes long.
template <class Call>
void calls_beside(const char* what, ibv_context* context, Call&& call) {
  std::atomic<bool> begins = false, done = false;
  std::optional<Spell> spell;
  std::thread other([&, caller = own_thread()] {
    spell.emplace(caller);
    begins = true;
    expect(call(), what);
    done = true;
  });
  while (!begins) {
  }
  int calls = 0;
  for (ibv_device_attr device{}; !done; ++calls) {
    expect(ibv_query_device(context, &device) == 0, "query");
  }
  // Few calls are enough if this thread has waited for a processor most of the time.
  const bool starved = spell->undisturbed() < spell->all() / 2;
  other.join();
  std::printf("%s: %s\n", what, calls > 20 || starved ? "many" : "few");
}

/// Registering much memory takes long; other calls do not wait for that.
int registers() {
  constexpr std::uint32_t kMuch = 256u << 20;
  auto* const context = open_devx();
  auto* const pd = ibv_alloc_pd(context);
  const auto with_memory = [&](const char* what, auto&& call) {
    void* const much =
        ::mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    calls_beside(what, context, [&] { return call(much); });
  };
  with_memory("region", [&](void* much) {
    auto* const region = ibv_reg_mr(pd, much, kMuch, kAccess);
    return region != nullptr && ::munmap(much, kMuch) == 0;
  });
  with_memory("umem", [&](void* much) {
    auto* const umem = mlx5dv_devx_umem_reg(context, much, kMuch, IBV_ACCESS_LOCAL_WRITE);
    return umem != nullptr && ::munmap(much, kMuch) == 0;
  });
  with_memory("prefetched", [&](void* much) {
    auto* const region = ibv_reg_mr(pd, much, kMuch, kAccess | IBV_ACCESS_ON_DEMAND);
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(much), kMuch, region->lkey};
    return ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &piece,
                         1) == 0;
  });
  return 0;
}

void print_states() {
  for (const auto* name : {"state", "phys_state"}) {
    const auto path = std::string("/sys/class/infiniband/mlx5_0/ports/1/") + name;
    const int file = ::open(path.c_str(), O_RDONLY);
    char text[64] = "";
    expect(::read(file, text, sizeof text - 1) > 0, name);
    std::printf("%s", text);
  }
  std::fflush(stdout);
}

/// The hub ends. With --private, it is in `softhca run` itself.
int hub_ends() {
  auto* const context = open_first();
  expect(context != nullptr && ::kill(::getppid(), SIGKILL) == 0, "kill");
  ibv_async_event event{};
  expect(ibv_get_async_event(context, &event) == 0, "event");
  std::printf("%s\n", ibv_event_type_str(event.event_type));
  ibv_ack_async_event(&event);
  ibv_port_attr port{};
  expect(ibv_query_port(context, 1, &port) == 0, "port");
  std::printf("%s\n", ibv_port_state_str(port.state));
  std::fflush(stdout);
  // A child has no device, so it checks the hub's socket. The parent's device has noticed the end
  // itself, and needs no socket.
  const auto child = ::fork();
  if (child == 0) {
    print_states();
    ::_exit(0);
  }
  expect(::waitpid(child, nullptr, 0) == child, "child");
  const auto hub = std::string(std::getenv("SOFTHCA_DOOR")) + "/hub";
  expect(::unlink(hub.c_str()) == 0, "unlink");
  print_states();
  return 0;
}

/// The hub does not answer while a device is opened: other devices go on. With --private, the hub
/// is in `softhca run` itself.
int hub_stops() {
  auto** const list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr && list[1] != nullptr, "two devices");
  auto* const context = ibv_open_device(list[0]);
  expect(context != nullptr && ::kill(::getppid(), SIGSTOP) == 0, "kill");
  std::atomic<bool> begins = false, done = false;
  bool opened = false;
  std::thread other([&] {
    begins = true;
    opened = ibv_open_device(list[1]) != nullptr;
    done = true;
  });
  while (!begins) {
  }
  for (int i = 0; i != 20'000; ++i) {
    ibv_device_attr device{};
    expect(ibv_query_device(context, &device) == 0, "query");
  }
  std::puts(done ? "has not waited" : "waits");
  expect(::kill(::getppid(), SIGCONT) == 0, "kill");
  other.join();
  std::puts(opened ? "opened" : "not opened");
  return 0;
}

/// A CQ that is armed for any completion, and then for solicited ones: any completion raises the
/// event. On one processor, the thread of the devices rarely runs between the two requests: it
/// would take the first one as well.
int armed_twice() {
  constexpr int kRounds = 100;
  stay_on_one_processor();
  const Loop loop(true);
  auto* const buffer = memory();
  auto* const key = ibv_reg_mr(loop.pd, buffer, kSize, kAccess);
  for (int i = 0; i != kRounds; ++i) {
    expect(ibv_req_notify_cq(loop.cq, 0) == 0 && ibv_req_notify_cq(loop.cq, 1) == 0, "arm");
    post(loop, IBV_WR_RDMA_WRITE, buffer, key->lkey, buffer + 8, key->rkey);
    pollfd at{.fd = loop.channel->fd, .events = POLLIN, .revents = 0};
    if (::poll(&at, 1, 10'000) != 1) {
      std::printf("asleep in round %d\n", i);
      return 0;
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    expect(ibv_get_cq_event(loop.channel, &cq, &context) == 0, "event");
    ibv_ack_cq_events(cq, 1);
    for (ibv_wc completion{}; ibv_poll_cq(loop.cq, 1, &completion) == 0;) {
    }
  }
  std::printf("woken\n");
  return 0;
}

/// The thread of the devices looks for free processors without streams of libc. Their lock would be
/// taken for ever in a child that was created meanwhile, without fork().
int no_streams() {
  const Loop loop(true);
  auto* const buffer = memory();
  auto* const key = ibv_reg_mr(loop.pd, buffer, kSize, kAccess);
  expect(ibv_req_notify_cq(loop.cq, 0) == 0, "arm");
  post(loop, IBV_WR_RDMA_WRITE, buffer, key->lkey, buffer + 8, key->rkey);
  // Without a poll, that thread alone raises the event. It has looked before.
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  expect(ibv_get_cq_event(loop.channel, &cq, &context) == 0, "event");
  std::printf("%d streams\n", opened_quota_streams());
  return 0;
}

/// The run ends, and one of its processes goes on.
int outlives() {
  if (::fork() != 0) return 0;
  const int events = ::inotify_init1(IN_CLOEXEC);
  expect(events >= 0, "inotify");
  // This fails if the run has already ended.
  if (::inotify_add_watch(events, std::getenv("SOFTHCA_DOOR"), IN_DELETE_SELF) >= 0) {
    inotify_event event;
    expect(::read(events, &event, sizeof event) > 0, "the end of the run");
  }
  int count = 0;
  (void)ibv_get_device_list(&count);
  std::printf("%d devices\n", count);
  return 0;
}

constexpr Case kCases[] = {{"hub-ends", hub_ends},       {"hub-stops", hub_stops},
                           {"outlives", outlives},       {"no-streams", no_streams},
                           {"armed-twice", armed_twice}, {"asks", asks},
                           {"registers", registers}};

}  // namespace

std::span<const Case> meanwhile() { return kCases; }

}  // namespace lives
