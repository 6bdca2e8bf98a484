// Memory windows of type 2 are bound and invalidated until the send queue has wrapped, at one
// address without bit 31 and at one with it. libmlx5 does not write the dword of the key's
// length64, so it keeps the value of an older WQE.
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <initializer_list>

#include "loop_qps.h"

namespace {

constexpr int kTurns = 300;

void post(const Loop& loop, ibv_send_wr& work) {
  ibv_send_wr* bad = nullptr;
  work.send_flags = IBV_SEND_SIGNALED;
  expect(ibv_post_send(loop.qp, &work, &bad) == 0, "post");
  ibv_wc done{};
  while (ibv_poll_cq(loop.cq, 1, &done) == 0) {
  }
  if (done.status == IBV_WC_SUCCESS) return;
  std::fprintf(stderr, "%s, vendor_err %#x\n", ibv_wc_status_str(done.status), done.vendor_err);
  std::exit(1);
}

void bind_and_invalidate(const Loop& loop, std::uintptr_t at) {
  auto* const memory = ::mmap(reinterpret_cast<void*>(at), 4096, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  expect(memory == reinterpret_cast<void*>(at), "mmap");
  auto* const key = ibv_reg_mr(loop.pd, memory, 4096, kAccess | IBV_ACCESS_MW_BIND);
  expect(key != nullptr, "registration");
  auto* const window = ibv_alloc_mw(loop.pd, IBV_MW_TYPE_2);
  expect(window != nullptr, "window");
  for (int i = 0; i != kTurns; ++i) {
    ibv_send_wr bind{};
    bind.opcode = IBV_WR_BIND_MW;
    bind.bind_mw.mw = window;
    bind.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    bind.bind_mw.bind_info = {key, at, 4096, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    post(loop, bind);
    window->rkey = bind.bind_mw.rkey;
    ibv_send_wr invalidate{};
    invalidate.opcode = IBV_WR_LOCAL_INV;
    invalidate.invalidate_rkey = window->rkey;
    post(loop, invalidate);
  }
}

}  // namespace

int main() {
  const Loop loop;
  for (const std::uintptr_t at : {0x10000000u, 0x90000000u}) bind_and_invalidate(loop, at);
  std::puts("all windows");
  return 0;
}
