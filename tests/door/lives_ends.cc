// How processes end while they have a device open.
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "lives.h"
#include "lives_library.h"

namespace lives {
namespace {

void poll_for_ever(ibv_cq* cq) {
  for (ibv_wc completion{}; ibv_poll_cq(cq, 1, &completion) >= 0;) {
  }
}

/// The usual end of a program: Ctrl-C while it polls.
int exit_in_handler() {
  const Loop loop;
  ::signal(SIGALRM, [](int) { std::exit(0); });
  itimerval when{};
  when.it_value.tv_usec = 1000 + static_cast<suseconds_t>(::getpid() % 100) * 10;
  ::setitimer(ITIMER_REAL, &when, nullptr);
  poll_for_ever(loop.cq);
  return 1;
}

/// Another thread goes on polling while the process ends.
int exit_beside_polls() {
  const Loop loop;
  std::atomic<bool> polls = false;
  std::thread([&] {
    polls = true;
    poll_for_ever(loop.cq);
  }).detach();
  while (!polls) {
  }
  std::exit(0);
}

/// A shared library that closes its device in a destructor, which runs after the door's.
int exit_in_library() {
  open_device();
  return 0;
}

/// A child that was created without fork() has a copy of its parent's memory, and ends.
int exit_of_a_clone() {
  const Loop loop;
  std::atomic<bool> polls = false;
  std::thread([&] {
    polls = true;
    poll_for_ever(loop.cq);
  }).detach();
  while (!polls) {
  }
  for (int i = 0; i != 20; ++i) {
    const auto child = ::_Fork();
    if (child == 0) std::exit(0);
    int status = 0;
    expect(::waitpid(child, &status, 0) == child, "waitpid");
    if (status != 0) return 1;
  }
  std::puts("all have ended");
  std::fflush(stdout);
  ::_exit(0);
}

/// fork() while another thread opens devices: each child can open a device.
int fork_beside_opens() {
  std::atomic<bool> stops = false;
  std::thread opens([&] {
    while (!stops) {
      auto** const list = ibv_get_device_list(nullptr);
      if (auto* context = ibv_open_device(list[0]); context != nullptr) ibv_close_device(context);
      ibv_free_device_list(list);
    }
  });
  int wrong = 0;
  for (int i = 0; i != 10; ++i) {
    const auto child = ::fork();
    if (child == 0) {
      const int file = ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
      ::_exit(file < 0 ? 1 : 0);
    }
    int status = 0;
    expect(::waitpid(child, &status, 0) == child, "waitpid");
    wrong += status != 0;
  }
  stops = true;
  opens.join();
  std::printf("%d wrong\n", wrong);
  return 0;
}

/// Handlers of fork() that are registered before those of the library. So they run while it has its
/// locks: last before the fork, and first after it.
using ForkHandler = void (*)();
constinit ForkHandler in_parent = nullptr;
constinit ForkHandler in_child = nullptr;

void register_handlers(int, char**, char**) {
  const auto parent = [] {
    if (in_parent != nullptr) in_parent();
  };
  const auto child = [] {
    if (in_child != nullptr) in_child();
  };
  ::pthread_atfork(parent, parent, child);
}

/// Runs before the constructors of all libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*before_all)(int, char**,
                                                                 char**) = register_handlers;

int wait_for(pid_t child) {
  int status = 1;
  expect(::waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

const Loop* loop_in_fork;
ibv_mr* memory_in_fork;
int file_of_child = -1;

/// The child's handler has opened a device file, which the child still has after fork().
int end_of_fork_with_device() {
  const auto child = ::fork();
  if (child == 0) {
    struct stat status{};
    ::_exit(::fstat(file_of_child, &status) == 0 && S_ISCHR(status.st_mode) ? 0 : 3);
  }
  std::printf("status of the child: %d\n", wait_for(child));
  return 0;
}

/// The handlers use a device: those of the parent have one, and the child opens one.
int uses_in_fork() {
  loop_in_fork = new Loop;
  memory_in_fork = ibv_reg_mr(loop_in_fork->pd, memory(), kSize, kAccess);
  expect(memory_in_fork != nullptr, "registration");
  in_parent = [] {
    auto* const bytes = static_cast<char*>(memory_in_fork->addr);
    const auto* const written = access(*loop_in_fork, IBV_WR_RDMA_WRITE, bytes,
                                       memory_in_fork->lkey, bytes + 8, memory_in_fork->rkey);
    ibv_device_attr attributes{};
    const bool queried = ibv_query_device(loop_in_fork->context, &attributes) == 0;
    std::printf("%s, %s\n", written, queried ? "queried" : "not queried");
    tell("GID", ::open("/sys/class/infiniband/mlx5_0/ports/1/gids/0", O_RDONLY | O_CLOEXEC));
    tell("open", ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC));
  };
  in_child = [] {
    ibv_device_attr attributes{};
    if (ibv_query_device(loop_in_fork->context, &attributes) == 0) ::_exit(1);
    file_of_child = ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    if (file_of_child < 0) ::_exit(2);
  };
  return end_of_fork_with_device();
}

/// The same for a child whose parent has no device.
int opens_in_child_of_fork() {
  in_child = [] {
    file_of_child = ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    if (file_of_child < 0) ::_exit(2);
  };
  return end_of_fork_with_device();
}

/// A handler of fork() forks: afterwards the library has none of its locks.
int fork_in_fork() {
  const Loop loop;
  in_parent = [] {
    in_parent = nullptr;
    const auto inner = ::fork();
    if (inner == 0) ::_exit(0);
    std::printf("status of the inner child: %d\n", wait_for(inner));
  };
  const auto child = ::fork();
  if (child == 0) ::_exit(::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) >= 0 ? 0 : 1);
  std::printf("status of the child: %d\n", wait_for(child));
  ibv_device_attr attributes{};
  expect(ibv_query_device(loop.context, &attributes) == 0, "query");
  tell("open", ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC));
  return 0;
}

bool listens() {
  auto* const channel = ::rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  expect(channel != nullptr, "channel");
  expect(::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "identifier");
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(7471);
  return ::rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&any)) == 0 && ::rdma_listen(id, 1) == 0;
}

/// A port number is free once the listening process has ended, although its child lives.
int child_of_a_listener() {
  int ends[2];
  expect(::pipe(ends) == 0, "pipe");
  const auto listener = ::fork();
  if (listener == 0) {
    expect(listens(), "listen");
    if (::fork() != 0) ::_exit(0);
    ::close(ends[1]);
    char byte;
    (void)!::read(ends[0], &byte, 1);  // lives as long as the first process
    ::_exit(0);
  }
  int status = 1;
  expect(::waitpid(listener, &status, 0) == listener && status == 0, "the first listener");
  std::puts(listens() ? "listens" : std::strerror(errno));
  return 0;
}

constexpr Case kCases[] = {{"exit-in-handler", exit_in_handler},
                           {"child-of-a-listener", child_of_a_listener},
                           {"exit-beside-polls", exit_beside_polls},
                           {"exit-in-library", exit_in_library},
                           {"exit-of-a-clone", exit_of_a_clone},
                           {"fork-beside-opens", fork_beside_opens},
                           {"uses-in-fork", uses_in_fork},
                           {"fork-in-fork", fork_in_fork},
                           {"opens-in-child-of-fork", opens_in_child_of_fork}};

}  // namespace

std::span<const Case> ends() { return kCases; }

}  // namespace lives
