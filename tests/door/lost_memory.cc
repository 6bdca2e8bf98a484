// A program that unmaps memory while it is registered.
//   lost_memory write|read source|target|nothing
//   lost_memory crash source
// Prints the result of an operation of 1 MiB between two of its own QPs: on two devices if there
// are two, so that the frames cross links. Faults of the program's own code still go to its
// handler: "crash" touches the unmapped memory, and expects that.
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
  int devices = 0;
  auto** const list = ibv_get_device_list(&devices);
  expect(devices != 0, "no device");
  const auto one = open_side(list[0]), two = open_side(list[devices - 1]);
  connect(one.qp, two.qp->qp_num, two.gid);
  connect(two.qp, one.qp->qp_num, one.gid);
  const bool read = verb == "read";
  const auto &from = read ? two : one, &to = read ? one : two;
  auto *const source = from.bytes, *const target = to.bytes;
  std::memset(source, 7, kSize);
  ::signal(SIGSEGV, handle);

  if (lost == "source") ::munmap(source, kSize);
  if (lost == "target") ::munmap(target, kSize);
  ibv_sge local{reinterpret_cast<std::uintptr_t>(one.bytes), kSize, one.key->lkey};
  ibv_send_wr work{};
  work.sg_list = &local;
  work.num_sge = 1;
  work.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(two.bytes), two.key->rkey};
  ibv_send_wr* bad;
  expect(ibv_post_send(one.qp, &work, &bad) == 0, "post");
  ibv_wc completion{};
  while (ibv_poll_cq(one.cq, 1, &completion) == 0) {
  }
  std::printf("%s\n", completion.status == IBV_WC_SUCCESS ? "success" : "an error completion");
  std::fflush(stdout);
  if (lost == "nothing" && std::memcmp(source, target, kSize) != 0) return 3;
  if (verb == "crash") *static_cast<volatile char*>(source) = 1;
  return 0;
}
