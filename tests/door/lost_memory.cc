// A program that takes away memory which it has registered, in the middle of its life with RDMA.
//   lost_memory write|read source|target|nothing
// Prints what becomes of an operation of 1 MiB between two of its own QPs. The signals of its own
// mistakes stay its own: "crash" touches what is gone, and wants its handler to be called.
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr std::size_t kSize = 1 << 20;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr std::uint8_t kGidIndex = 3;

void expect(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

void connect(ibv_qp* qp, std::uint32_t peer, const ibv_gid& gid) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = 1;
  init.qp_access_flags = kAccess;
  expect(ibv_modify_qp(qp, &init,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
         "INIT");
  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  rtr.path_mtu = IBV_MTU_4096;
  rtr.dest_qp_num = peer;
  rtr.max_dest_rd_atomic = 1;
  rtr.ah_attr.is_global = 1;
  rtr.ah_attr.grh.dgid = gid;
  rtr.ah_attr.grh.sgid_index = kGidIndex;
  rtr.ah_attr.grh.hop_limit = 1;
  rtr.ah_attr.port_num = 1;
  expect(ibv_modify_qp(qp, &rtr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
         "RTR");
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  rts.timeout = 8;
  rts.retry_cnt = 3;
  rts.max_rd_atomic = 1;
  expect(ibv_modify_qp(qp, &rts,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
         "RTS");
}

char* memory() {
  void* const got =
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(got != MAP_FAILED, "mmap");
  return static_cast<char*>(got);
}

void handle(int) {
  constexpr std::string_view kText = "the program's own handler\n";
  (void)!::write(STDOUT_FILENO, kText.data(), kText.size());
  ::_exit(0);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  const std::string_view verb = words[1], lost = words[2];
  auto** const list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr, "no device");
  auto* const context = ibv_open_device(list[0]);
  auto* const pd = ibv_alloc_pd(context);
  auto* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  ibv_gid gid;
  expect(ibv_query_gid(context, 1, kGidIndex, &gid) == 0, "GID");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {4, 4, 1, 1, 0};
  auto* const qp = ibv_create_qp(pd, &attributes);
  auto* const peer = ibv_create_qp(pd, &attributes);
  expect(qp != nullptr && peer != nullptr, "QP");
  connect(qp, peer->qp_num, gid);
  connect(peer, qp->qp_num, gid);
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
