// A program that polls by ibv_start_poll(): counts the polls until a completion comes. Prints "at
// once" if they are few: each poll drives the device, as with ibv_poll_cq().
#include <algorithm>
#include <array>
#include <cerrno>

#include "loop_qps.h"

int main() {
  constexpr int kRounds = 500;
  stay_on_one_processor();
  auto** const list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr, "no device");
  auto* const context = ibv_open_device(list[0]);
  expect(context != nullptr, "open");
  auto* const pd = ibv_alloc_pd(context);
  // One CQ with locks and one without: the provider has different functions for them.
  std::array<ibv_cq_ex*, 2> cqs{};
  for (std::uint32_t i = 0; i != cqs.size(); ++i) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 16;
    attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attributes.flags = i == 0 ? 0 : IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    cqs[i] = ibv_create_cq_ex(context, &attributes);
    expect(cqs[i] != nullptr, "CQ");
  }
  ibv_gid gid;
  expect(ibv_query_gid(context, 1, kGidIndex, &gid) == 0, "GID");
  std::array<ibv_qp*, 2> qps{};
  for (std::size_t i = 0; i != qps.size(); ++i) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = ibv_cq_ex_to_cq(cqs[i]);
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {4, 4, 1, 1, 0};
    qps[i] = ibv_create_qp(pd, &attributes);
    expect(qps[i] != nullptr, "QP");
  }
  connect(qps[0], qps[1]->qp_num, gid);
  connect(qps[1], qps[0]->qp_num, gid);
  auto* const bytes = memory();
  const auto* const key = ibv_reg_mr(pd, bytes, kSize, kAccess);
  expect(key != nullptr, "registration");
  std::array<int, 2 * kRounds> looks{};
  for (std::size_t i = 0; i != looks.size(); ++i) {
    bytes[0] = static_cast<char>(i);
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes), 64, key->lkey};
    ibv_send_wr work{}, *bad;
    work.wr_id = i;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.rdma = {reinterpret_cast<std::uintptr_t>(bytes) + 4096, key->rkey};
    expect(ibv_post_send(qps[i % 2], &work, &bad) == 0, "post");
    ibv_poll_cq_attr attributes{};
    auto* const cq = cqs[i % 2];
    int result;
    do {
      ++looks[i];
      result = ibv_start_poll(cq, &attributes);
    } while (result == ENOENT);
    expect(result == 0 && cq->status == IBV_WC_SUCCESS && cq->wr_id == i, "completion");
    ibv_end_poll(cq);
    expect(bytes[4096] == bytes[0], "content");
  }
  std::ranges::sort(looks);
  std::fprintf(stderr, "looks for a completion: %d in half of the rounds\n", looks[kRounds]);
  std::puts(looks[kRounds] <= 8 ? "at once" : "late");
  return 0;
}
