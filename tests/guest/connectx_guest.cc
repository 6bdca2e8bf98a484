// A program for guests: attacks on a ConnectX function of the guest's PCI bus, by driver/connectx
// over VFIO.
//
//   connectx_guest attacks                               lists the attacks
//   connectx_guest attack NAME ADDRESS NETDEV TIMES      runs one (SEED=n), with TIMES times the
//                                                        deeds of a test; NETDEV belongs to another
//                                                        function, and sends frames to this one
//   connectx_guest check ADDRESS                         checks that an RDMA WRITE arrives
//
// Each life of the function is a process that ends in the middle of its work.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "attacks.h"
#include "driver/vfio_host.h"
#include "util/log.h"

namespace softhca::guest {

namespace {

using namespace std::chrono_literals;
/// An attack that takes longer than this for its deeds makes no progress.
constexpr auto kPatience = 600s;

struct Order {
  const Attack& attack;
  std::string address;
  std::string netdev;
};

/// Runs one life in a child process. Never returns.
[[noreturn]] void live(const Order& order, std::uint64_t seed, Tally& tally) {
  try {
    Life life(order.address, order.netdev, seed, tally);
    order.attack.run(life);
    Life::end();
  } catch (const std::exception& error) {
    fmt::print(stderr, "connectx_guest: {}: {}\n", order.attack.name, error.what());
  }
  ::_exit(1);
}

/// Waits until the child ends, and kills it at `latest`.
void bury(pid_t child, util::Time latest) {
  while (::waitpid(child, nullptr, WNOHANG) == 0) {
    if (util::monotonic_now() > latest) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(10ms);
  }
}

int attack(const Order& order, unsigned times) {
  const char* seed = std::getenv("SEED");
  std::mt19937_64 random(seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1);
  // Shared memory, so that the deeds of all children are counted.
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  auto& tally = *new (page) Tally;
  tally.most = order.attack.deeds * times;
  const auto latest = util::monotonic_now() + kPatience * times;
  unsigned lives = 0;
  do {
    const auto next = random();
    const auto child = ::fork();
    if (child == 0) live(order, next, tally);
    bury(child, latest);
    ++lives;
  } while (!tally.is_full() && util::monotonic_now() < latest);
  fmt::print("{}: {} deeds of {} in {} lives\n", order.attack.name, tally.deeds.load(), tally.most,
             lives);
  return tally.is_full() ? 0 : 1;
}

int check(const std::string& address) {
  constexpr std::size_t kSize = 1 << 20;
  neighbours::LoopHca loop(neighbours::must(driver::VfioHost::open(address)), 66, 2 * kSize);
  const auto pair = loop.make_pair();
  for (std::size_t i = 0; i != kSize; ++i) {
    loop.memory()[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  const auto piece = loop.piece(0, kSize);
  (void)pair.from->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                              .pieces = {&piece, 1},
                              .remote_address = loop.iova(kSize),
                              .rkey = loop.key()});
  driver::Completion done;
  for (const auto end = util::monotonic_now() + 30s; loop.cq().poll({&done, 1}) == 0;) {
    if (util::monotonic_now() > end) throw std::runtime_error("no completion");
  }
  const bool right = done.status == driver::WorkStatus::kSuccess &&
                     std::memcmp(&loop.memory()[0], &loop.memory()[kSize], kSize) == 0;
  fmt::print("the function {}\n", right ? "works" : "does not work");
  return right ? 0 : 1;
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "attacks") {
    for (const auto& one : attacks()) fmt::print("{}\n", one.name);
    return 0;
  }
  if (words.size() == 2 && words[0] == "check") return check(words[1]);
  if (words.size() == 5 && words[0] == "attack") {
    const auto one = std::ranges::find(attacks(), words[1], &Attack::name);
    if (one != attacks().end()) return attack({*one, words[2], words[3]}, std::stoul(words[4]));
  }
  fmt::print(
      stderr,
      "usage: connectx_guest attacks | attack NAME ADDRESS NETDEV TIMES | check ADDRESS\n\n");
  for (const auto& one : attacks()) fmt::print(stderr, "  {:14} {}\n", one.name, one.what);
  return 2;
}

}  // namespace
}  // namespace softhca::guest

int main(int argc, char** argv) {
  // Errors that the attacks provoke on purpose are not logged.
  softhca::util::set_log_level(softhca::util::LogLevel::kError);
  try {
    return softhca::guest::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "connectx_guest: {}\n", error.what());
    return 1;
  }
}
