// A program with queues that does nothing for a while, and then something: how long does it wait
// for the completion?  idle_queues events|polls [blocked] Prints "in time" if the typical answer
// takes less than 0.4 s: the next look of an idle engine, which looks once a second, would come
// later. "blocked": the thread blocks all signals, as helpers of libraries do.
#include <infiniband/verbs.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <thread>

#include "loop_qps.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

Clock::duration answer_of(const Loop& loop, const ibv_mr* key, bool events) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(key->addr), 64, key->lkey};
  ibv_send_wr work{}, *bad;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(key->addr) + 4096, key->rkey};
  if (events) expect(ibv_req_notify_cq(loop.cq, 0) == 0, "arm");
  const auto begin = Clock::now();
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
  return Clock::now() - begin;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  const bool events = std::string_view(words[1]) == "events";
  const Loop loop(events);
  const auto* const key = ibv_reg_mr(loop.pd, memory(), kSize, kAccess);
  expect(key != nullptr, "registration");
  std::array<Clock::duration, 5> all{};
  std::thread worker([&] {
    if (count > 2) {
      sigset_t set;
      ::sigfillset(&set);
      ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    }
    for (auto& one : all) {
      std::this_thread::sleep_for(300ms);
      one = answer_of(loop, key, events);
    }
  });
  worker.join();
  std::ranges::sort(all);
  const auto typical = std::chrono::duration_cast<std::chrono::microseconds>(all[2]).count();
  std::fprintf(stderr, "%lld us\n", static_cast<long long>(typical));
  std::puts(typical < 400'000 ? "in time" : "late");
  return 0;
}
