// A program with queues that is idle for a while and then posts a WQE. An idle engine polls once a
// second: the completion must not wait for that poll.
//   idle_queues events|polls [blocked]
// Prints "in time" if the engine sleeps for at most half a second during five completions. Five
// polls of an idle engine take two and a half seconds on average. Time in which the engine or the
// program waits for a processor does not count: a busy machine has much of it. "blocked": the
// thread blocks all signals, as helpers of libraries do.
#include <infiniband/verbs.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "loop_qps.h"
#include "schedule.h"

namespace {

using namespace std::chrono_literals;

/// The engine's thread. It exists while a device is open.
std::filesystem::path engine() {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    if (name == "softhca") return thread.path();
  }
  expect(false, "an engine");
  return {};
}

void expect_answer(const Loop& loop, const ibv_mr* key, bool events) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(key->addr), 64, key->lkey};
  ibv_send_wr work{}, *bad;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(key->addr) + 4096, key->rkey};
  if (events) expect(ibv_req_notify_cq(loop.cq, 0) == 0, "arm");
  expect(ibv_post_send(loop.qp, &work, &bad) == 0, "post");
  if (events) {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    expect(ibv_get_cq_event(loop.channel, &cq, &context) == 0, "event");
    ibv_ack_cq_events(cq, 1);
  }
  ibv_wc done{};
  while (ibv_poll_cq(loop.cq, 1, &done) == 0) {
  }
  expect(done.status == IBV_WC_SUCCESS, "completion");
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  const bool events = std::string_view(words[1]) == "events";
  const Loop loop(events);
  const auto* const key = ibv_reg_mr(loop.pd, memory(), kSize, kAccess);
  expect(key != nullptr, "registration");
  std::chrono::nanoseconds slept{};
  std::thread worker([&] {
    if (count > 2) {
      sigset_t set;
      ::sigfillset(&set);
      ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    }
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(300ms);
      const Spell its(engine()), own(own_thread());
      expect_answer(loop, key, events);
      // If this thread has waited for a processor, the answer may have been there.
      slept += std::min(its.asleep(), own.undisturbed());
    }
  });
  worker.join();
  std::fprintf(stderr, "the engine slept for %lld us\n", static_cast<long long>(slept / 1us));
  std::puts(slept <= 500ms ? "in time" : "late");
  return 0;
}
