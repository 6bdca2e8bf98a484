// ib_write_lat in one process: two QPs of a program of `softhca run` write 8 bytes to each other.
// The waiting side polls memory, so no libibverbs call lets the device work. With two processors,
// one is free for the library's thread; two processes of ib_write_lat want four. Prints the median
// of one way in microseconds.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "door/loop_qps.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 1000;
constexpr int kRounds = 10'000;
constexpr auto kAnswer = std::chrono::microseconds(3);
constexpr std::size_t kMessage = 8;
constexpr std::size_t kTarget = 4096;

void write(ibv_qp* qp, const ibv_mr* key, std::uint64_t value) {
  auto* const from = static_cast<char*>(key->addr);
  *reinterpret_cast<volatile std::uint64_t*>(from) = value;
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(from), kMessage, key->lkey};
  ibv_send_wr work{}, *bad;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(from) + kTarget, key->rkey};
  expect(ibv_post_send(qp, &work, &bad) == 0, "post");
}

}  // namespace

int main() {
  const Loop loop(false, kMessage);
  const auto* const key = ibv_reg_mr(loop.pd, memory(), kSize, kAccess);
  expect(key != nullptr, "registration");
  const auto* const target = reinterpret_cast<const volatile std::uint64_t*>(
      static_cast<const char*>(key->addr) + kTarget);
  std::vector<double> ways;
  for (int i = 1; i <= kWarmUp + kRounds; ++i) {
    // As long as another program takes to answer: meanwhile the device is idle.
    auto begin = Clock::now();
    for (const auto end = begin + kAnswer; begin < end;) begin = Clock::now();
    write(i % 2 == 0 ? loop.qp : loop.peer, key, static_cast<std::uint64_t>(i));
    while (*target != static_cast<std::uint64_t>(i)) {
    }
    if (i > kWarmUp) {
      ways.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    ibv_wc done{};
    while (ibv_poll_cq(loop.cq, 1, &done) == 0) {
    }
    expect(done.status == IBV_WC_SUCCESS, "completion");
  }
  std::ranges::nth_element(ways, ways.begin() + kRounds / 2);
  std::printf("%zu %.2f\n", kMessage, ways[kRounds / 2]);
  return 0;
}
