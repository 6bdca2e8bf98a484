// A program that unmaps memory while it is registered.
//   lost_memory write|read source|target|nothing
//   lost_memory crash source
// Prints the result of an operation of 1 MiB between two of its own QPs. Faults of the program's
// own code still go to its handler: "crash" touches the unmapped memory, and expects that.
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "loop_qps.h"

namespace {

void handle(int) {
  constexpr std::string_view kText = "the program's own handler\n";
  (void)!::write(STDOUT_FILENO, kText.data(), kText.size());
  ::_exit(0);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  const std::string_view verb = words[1], lost = words[2];
  const Loop loop;
  auto* const pd = loop.pd;
  auto* const cq = loop.cq;
  auto* const qp = loop.qp;
  auto* const source = memory();
  auto* const target = memory();
  std::memset(source, 7, kSize);
  auto* const source_key = ibv_reg_mr(pd, source, kSize, kAccess);
  auto* const target_key = ibv_reg_mr(pd, target, kSize, kAccess);
  expect(source_key != nullptr && target_key != nullptr, "registration");
  ::signal(SIGSEGV, handle);

  if (lost == "source") ::munmap(source, kSize);
  if (lost == "target") ::munmap(target, kSize);
  const bool read = verb == "read";
  ibv_sge local{reinterpret_cast<std::uintptr_t>(read ? target : source), kSize,
                (read ? target_key : source_key)->lkey};
  ibv_send_wr work{};
  work.sg_list = &local;
  work.num_sge = 1;
  work.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(read ? source : target),
                  (read ? source_key : target_key)->rkey};
  ibv_send_wr* bad;
  expect(ibv_post_send(qp, &work, &bad) == 0, "post");
  ibv_wc completion{};
  while (ibv_poll_cq(cq, 1, &completion) == 0) {
  }
  std::printf("%s\n", completion.status == IBV_WC_SUCCESS ? "success" : "an error completion");
  std::fflush(stdout);
  if (lost == "nothing" && std::memcmp(source, target, kSize) != 0) return 3;
  if (verb == "crash") *static_cast<volatile char*>(source) = 1;
  return 0;
}
