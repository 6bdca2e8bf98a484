// Chapter transports: messages of XRC and DC, and ibv_start_poll.

#include "world.h"

namespace oracle {
namespace {

// XRC and DC.

void xrc(World& world) {
  ibv_srq_init_attr_ex in{};
  in.attr = {16, 1, 0};
  in.srq_type = IBV_SRQT_XRC;
  in.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  in.pd = world.pd;
  in.cq = world.cq;
  in.xrcd = world.xrcd();
  auto* const srq = made("SRQ", [&] { return ibv_create_srq_ex(world.context, &in); });
  auto* const one = create(world, Kind::kXrcSend);
  auto* const other = create(world, Kind::kXrcReceive);
  need(srq && one && other, "QPs");
  std::uint32_t of = 0;
  did("number", [&] { return ibv_get_srq_num(srq, &of); });
  did("sender", [&] { return bring(world, one, Kind::kXrcSend, IBV_QPS_RTS, other->qp_num); });
  did("receiver", [&] { return bring(world, other, Kind::kXrcReceive, IBV_QPS_RTR, one->qp_num); });
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
                            IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(world.bytes), 8, world.mr->lkey};
    ibv_recv_wr receive{2, nullptr, &piece, 1}, *bad_receive = nullptr;
    ibv_post_srq_recv(srq, &receive, &bad_receive);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = 1;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.qp_type.xrc.remote_srqn = of;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {reinterpret_cast<std::uintptr_t>(world.bytes) + 64, 1, 0, world.mr->rkey};
    else
      wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(world.bytes) + 64, world.mr->rkey};
    did(text("post %d", opcode), [&] { return ibv_post_send(one, &wr, &bad); });
    for (int i = 0; i != 2; ++i) {
      const auto wc = completion(world.cq, i == 0 ? 10 : 1);
      line(text("opcode %d", opcode), describe(wc, one, other));
    }
  }
}

void dc(World& world) {
  auto* const dci = create(world, Kind::kDci);
  auto* const dct = create(world, Kind::kDct);
  need(dci && dct, "DC QPs");
  did("DCI", [&] { return bring(world, dci, Kind::kDci, IBV_QPS_RTS); });
  did("DCT", [&] { return bring(world, dct, Kind::kDct, IBV_QPS_RTR); });
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = world.gid;
  attr.grh.sgid_index = kGidIndex;
  attr.grh.hop_limit = 64;
  auto* const ah = made("AH", [&] { return ibv_create_ah(world.pd, &attr); });
  auto* const ex = ibv_qp_to_qp_ex(dci);
  auto* const dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
  const auto there = reinterpret_cast<std::uintptr_t>(world.bytes) + 4096;
  for (const std::uint64_t key : {kDcKey, kDcKey + 1}) {
    for (int kind = 0; kind != 3; ++kind) {
      ibv_sge piece{reinterpret_cast<std::uintptr_t>(world.bytes), 8, world.mr->lkey};
      ibv_recv_wr receive{2, nullptr, &piece, 1}, *bad = nullptr;
      if (kind == 0) ibv_post_srq_recv(world.srq(), &receive, &bad);
      ibv_wr_start(ex);
      ex->wr_id = 1;
      ex->wr_flags = IBV_SEND_SIGNALED;
      if (kind == 0) ibv_wr_send(ex);
      if (kind == 1) ibv_wr_rdma_write(ex, world.mr->rkey, there);
      if (kind == 2) ibv_wr_rdma_read(ex, world.mr->rkey, there);
      mlx5dv_wr_set_dc_addr(dv, ah, dct->qp_num, key);
      ibv_wr_set_sge(ex, world.mr->lkey, reinterpret_cast<std::uintptr_t>(world.bytes), 8);
      const auto name = text("operation %d, %s key", kind, key == kDcKey ? "right" : "wrong");
      did(name + ", post", [&] { return ibv_wr_complete(ex); });
      for (int i = 0; i != (kind == 0 && key == kDcKey ? 2 : 1); ++i)
        line(name, describe(completion(world.cq, 30), dci, dct));
    }
  }
}

// ibv_wr_* and ibv_start_poll.

void extended_polling(World& world, std::uint64_t flags) {
  ibv_cq_init_attr_ex in{};
  in.cqe = 64;
  in.wc_flags = flags;
  auto* const cq = ibv_create_cq_ex(world.context, &in);
  const auto name = text("wc flags 0x%llx", static_cast<unsigned long long>(flags));
  if (cq == nullptr) {
    line(name, error_name(errno));
    return;
  }
  world.cq = ibv_cq_ex_to_cq(cq);
  Pair pair(world);
  ibv_poll_cq_attr poll{};
  did(name + ", empty", [&] { return ibv_start_poll(cq, &poll); });
  for (const auto opcode :
       {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    post_receive(pair.other, world.bytes, 64, world.mr->lkey);
    Work work;
    work.opcode = opcode;
    work.from = work.to = world.bytes;
    work.length = 8;
    work.lkey = work.rkey = world.mr->lkey;
    work.immediate = 5;
    need(post(pair.one, work) == 0, "post");
    const bool receives = opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    for (int i = 0; i != (receives ? 2 : 1); ++i) {
      int got = ENOENT;
      for (long tries = 0; got == ENOENT && tries != 100000000; ++tries)
        got = ibv_start_poll(cq, &poll);
      line(text("%s, opcode %d", name.c_str(), opcode),
           got != 0 ? error_name(got)
                    : text("id %llu, status %d, opcode %d, flags 0x%x",
                           static_cast<unsigned long long>(cq->wr_id), cq->status,
                           ibv_wc_read_opcode(cq), ibv_wc_read_wc_flags(cq)));
      if (got == 0 && (flags & IBV_WC_EX_WITH_BYTE_LEN) != 0)
        number("bytes", ibv_wc_read_byte_len(cq));
      if (got == 0 && (flags & IBV_WC_EX_WITH_SL) != 0) number("sl", ibv_wc_read_sl(cq));
      if (got == 0 && (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0)
        line("time", ibv_wc_read_completion_ts(cq) != 0 ? "moves" : "zero");
      if (got == 0) ibv_end_poll(cq);
    }
  }
}

}  // namespace

ORACLE_CASE(transports, xrc) {
  World world;
  xrc(world);
}
ORACLE_CASE(transports, dc) {
  World world;
  dc(world);
}
ORACLE_CASE(transports, polling) {
  for (const std::uint64_t flags : {0ull, 1ull, 2ull, 4ull, 8ull, 16ull, 32ull, 64ull, 127ull,
                                    128ull, 512ull, 1024ull, 2048ull}) {
    World world;
    extended_polling(world, flags);
  }
}

}  // namespace oracle
