// A program with queues that is idle for a while and then posts a WQE. An idle engine polls once a
// second: the completion must not wait for that poll.
//   idle_queues events|polls [blocked]
// Prints "in time" if a metronome of the same process, which ticks every 20 ms, ticks at most 25
// times during five completions. Five polls of an idle engine take 125 ticks on average. "blocked":
// the thread blocks all signals, as helpers of libraries do.
#include <infiniband/verbs.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <thread>

#include "loop_qps.h"

namespace {

using namespace std::chrono_literals;

/// Measures time in its own wakeups, which a busy machine delays as much as an answer.
class Metronome {
 public:
  ~Metronome() {
    ends_ = true;
    thread_.join();
  }
  unsigned ticks() const { return ticks_; }

 private:
  std::atomic<bool> ends_ = false;
  std::atomic<unsigned> ticks_ = 0;
  std::thread thread_{[this] {
    for (; !ends_; ++ticks_) std::this_thread::sleep_for(20ms);
  }};
};

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
  const Metronome metronome;
  unsigned ticks = 0;
  std::thread worker([&] {
    if (count > 2) {
      sigset_t set;
      ::sigfillset(&set);
      ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    }
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(300ms);
      const auto before = metronome.ticks();
      expect_answer(loop, key, events);
      ticks += metronome.ticks() - before;
    }
  });
  worker.join();
  std::fprintf(stderr, "%u ticks\n", ticks);
  std::puts(ticks <= 25 ? "in time" : "late");
  return 0;
}
