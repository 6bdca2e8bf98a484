#include "world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

namespace oracle {
namespace {

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kConnected =
    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kReliable =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

int init_mask(Kind kind) {
  switch (kind) {
    case Kind::kUd:
      return kInit | IBV_QP_QKEY;
    case Kind::kRaw:
      return IBV_QP_STATE | IBV_QP_PORT;
    case Kind::kDci:
      return kInit;
    default:
      return kInit | IBV_QP_ACCESS_FLAGS;
  }
}

int rtr_mask(Kind kind) {
  switch (kind) {
    case Kind::kRc:
    case Kind::kXrcReceive:
      return kConnected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    case Kind::kUc:
    case Kind::kXrcSend:
      return kConnected;
    case Kind::kDci:
      return IBV_QP_STATE | IBV_QP_PATH_MTU;
    case Kind::kDct:
      return IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV;
    default:
      return IBV_QP_STATE;
  }
}

int rts_mask(Kind kind) {
  switch (kind) {
    case Kind::kRc:
    case Kind::kXrcSend:
    case Kind::kDci:
      return IBV_QP_STATE | IBV_QP_SQ_PSN | kReliable;
    case Kind::kXrcReceive:
      return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
    case Kind::kRaw:
      return IBV_QP_STATE;
    default:
      return IBV_QP_STATE | IBV_QP_SQ_PSN;
  }
}

ibv_qp* create_xrc_receive(World& world) {
  ibv_qp_init_attr_ex in{};
  in.qp_type = IBV_QPT_XRC_RECV;
  in.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  in.xrcd = world.xrcd();
  return ibv_create_qp_ex(world.context, &in);
}

ibv_qp* create_dc(World& world, Kind kind, const ibv_qp_cap& cap) {
  ibv_qp_init_attr_ex in{};
  mlx5dv_qp_init_attr dv{};
  in.qp_type = IBV_QPT_DRIVER;
  in.comp_mask = IBV_QP_INIT_ATTR_PD;
  in.pd = world.pd;
  in.send_cq = in.recv_cq = world.cq;
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = kind == Kind::kDci ? MLX5DV_DCTYPE_DCI : MLX5DV_DCTYPE_DCT;
  if (kind == Kind::kDct) {
    in.srq = world.srq();
    dv.dc_init_attr.dct_access_key = kDcKey;
  } else {
    in.cap = cap;
    in.cap.max_recv_wr = in.cap.max_recv_sge = 0;
    in.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    in.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
    in.sq_sig_all = 1;
  }
  return mlx5dv_create_qp(world.context, &in, &dv);
}

ibv_qp_type plain_type(Kind kind) {
  switch (kind) {
    case Kind::kUc:
      return IBV_QPT_UC;
    case Kind::kUd:
      return IBV_QPT_UD;
    case Kind::kRaw:
      return IBV_QPT_RAW_PACKET;
    case Kind::kXrcSend:
      return IBV_QPT_XRC_SEND;
    default:
      return IBV_QPT_RC;
  }
}

std::vector<ibv_qp_state> states_up_to(Kind kind, ibv_qp_state to) {
  std::vector<ibv_qp_state> all;
  const auto last = to == IBV_QPS_ERR ? IBV_QPS_RTR : to;
  for (int state = IBV_QPS_INIT; state <= last && state <= IBV_QPS_SQD; ++state) {
    if (kind == Kind::kDct && state > IBV_QPS_RTR) break;
    all.push_back(static_cast<ibv_qp_state>(state));
  }
  if (to == IBV_QPS_ERR) all.push_back(to);
  return all;
}

}  // namespace

const char* kind_name(Kind kind) {
  constexpr const char* names[] = {"rc", "uc", "ud", "xrc_send", "xrc_recv", "raw", "dci", "dct"};
  return names[static_cast<int>(kind)];
}

const char* state_name(ibv_qp_state state) {
  constexpr const char* names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "7"};
  return static_cast<unsigned>(state) < 8 ? names[state] : "?";
}

ibv_context* open_device(int number) {
  int count = 0;
  auto** const list = ibv_get_device_list(&count);
  need(list != nullptr && count > number, "no device");
  auto* const context = ibv_open_device(list[number]);
  need(context != nullptr, "open");
  return context;
}

char* pages(std::size_t bytes, int protection) {
  void* const got = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(got != MAP_FAILED, "mmap");
  return static_cast<char*>(got);
}

World::World(int device, std::size_t memory, int cqes)
    : context(open_device(device)),
      pd(ibv_alloc_pd(context)),
      cq(ibv_create_cq(context, cqes, nullptr, nullptr, 0)),
      size(memory),
      bytes(pages(memory)),
      mr(pd == nullptr ? nullptr : ibv_reg_mr(pd, bytes, memory, kAllAccess)) {
  need(pd != nullptr && cq != nullptr && mr != nullptr, "PD, CQ, MR");
  need(ibv_query_gid(context, 1, kGidIndex, &gid) == 0, "GID");
}

ibv_srq* World::srq() {
  if (srq_ != nullptr) return srq_;
  ibv_srq_init_attr in{};
  in.attr.max_wr = 64;
  in.attr.max_sge = 4;
  srq_ = ibv_create_srq(pd, &in);
  need(srq_ != nullptr, "SRQ");
  return srq_;
}

ibv_xrcd* World::xrcd() {
  if (xrcd_ != nullptr) return xrcd_;
  ibv_xrcd_init_attr in{};
  in.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  in.fd = -1;
  in.oflags = O_CREAT;
  xrcd_ = ibv_open_xrcd(context, &in);
  need(xrcd_ != nullptr, "XRC domain");
  return xrcd_;
}

ibv_qp* create(World& world, Kind kind, ibv_qp_cap cap, bool signal_all) {
  if (kind == Kind::kXrcReceive) return create_xrc_receive(world);
  if (kind == Kind::kDci || kind == Kind::kDct) return create_dc(world, kind, cap);
  ibv_qp_init_attr in{};
  in.send_cq = in.recv_cq = world.cq;
  in.cap = cap;
  in.qp_type = plain_type(kind);
  in.sq_sig_all = signal_all ? 1 : 0;
  if (kind == Kind::kRaw) in.cap.max_inline_data = 0;
  if (kind == Kind::kXrcSend) {
    in.recv_cq = nullptr;
    in.cap.max_recv_wr = in.cap.max_recv_sge = 0;
  }
  return ibv_create_qp(world.pd, &in);
}

ibv_qp_attr attributes(const World& world, const ibv_qp* qp, ibv_qp_state to, std::uint32_t peer) {
  ibv_qp_attr all{};
  all.qp_state = to;
  all.cur_qp_state = qp->state;
  all.path_mtu = IBV_MTU_1024;
  all.path_mig_state = IBV_MIG_MIGRATED;
  all.qkey = kQKey;
  all.rq_psn = all.sq_psn = kPsn;
  all.dest_qp_num = peer != 0 ? peer : qp->qp_num;
  all.qp_access_flags = kAllAccess;
  all.cap = {16, 16, 4, 4, 64};
  all.max_rd_atomic = all.max_dest_rd_atomic = 4;
  all.min_rnr_timer = 1;
  all.port_num = all.alt_port_num = 1;
  all.timeout = all.alt_timeout = 14;
  all.retry_cnt = all.rnr_retry = 7;
  all.ah_attr.is_global = 1;
  all.ah_attr.port_num = 1;
  all.ah_attr.grh.dgid = world.gid;
  all.ah_attr.grh.sgid_index = kGidIndex;
  all.ah_attr.grh.hop_limit = 64;
  all.alt_ah_attr = all.ah_attr;
  return all;
}

int required(Kind kind, ibv_qp_state from, ibv_qp_state to) {
  if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) return init_mask(kind);
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) return rtr_mask(kind);
  if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) return rts_mask(kind);
  return IBV_QP_STATE;
}

int bring(World& world, ibv_qp* qp, Kind kind, ibv_qp_state to, std::uint32_t peer) {
  auto from = IBV_QPS_RESET;
  for (const auto next : states_up_to(kind, to)) {
    auto all = attributes(world, qp, next, peer);
    const int failed = ibv_modify_qp(qp, &all, required(kind, from, next));
    if (failed != 0) return failed;
    from = next;
  }
  return 0;
}

Pair::Pair(World& world, Kind kind, ibv_qp_cap cap)
    : one(create(world, kind, cap)), other(create(world, kind, cap)) {
  need(one != nullptr && other != nullptr, "QPs");
  errno = bring(world, one, kind, IBV_QPS_RTS, other->qp_num);
  need(errno == 0, "first QP");
  errno = bring(world, other, kind, IBV_QPS_RTS, one->qp_num);
  need(errno == 0, "second QP");
}

ibv_wc completion(ibv_cq* cq, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  ibv_wc wc{};
  do {
    if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
  } while (std::chrono::steady_clock::now() < end);
  wc.status = static_cast<ibv_wc_status>(-1);
  return wc;
}

std::string describe(const ibv_wc& wc, const ibv_qp* one, const ibv_qp* other) {
  if (wc.status == static_cast<ibv_wc_status>(-1)) return "nothing comes";
  const auto name = [&](std::uint32_t number) {
    if (one != nullptr && number == one->qp_num) return std::string("one");
    if (other != nullptr && number == other->qp_num) return std::string("other");
    return std::string(number == 0 ? "0" : "another");
  };
  auto all = text("id %llu, %s, vendor 0x%x, QP %s", static_cast<unsigned long long>(wc.wr_id),
                  ibv_wc_status_str(wc.status), wc.vendor_err, name(wc.qp_num).c_str());
  if (wc.status != IBV_WC_SUCCESS) return all;
  all += text(", opcode %d, flags 0x%x", wc.opcode, wc.wc_flags);
  if ((wc.opcode & IBV_WC_RECV) == 0) return all;
  all += text(", %u bytes, src %s, slid %u, sl %u, path %u", wc.byte_len, name(wc.src_qp).c_str(),
              wc.slid, wc.sl, wc.dlid_path_bits);
  // libmlx5 also reads the P_Key index from where an immediate or an invalidated key stands.
  if ((wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) == 0)
    all += text(", pkey %u", wc.pkey_index);
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) all += text(", immediate 0x%x", be32toh(wc.imm_data));
  return all;
}

int post(ibv_qp* qp, const Work& work) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(work.from), work.length, work.lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 1;
  wr.sg_list = &piece;
  wr.num_sge = work.from != nullptr ? 1 : 0;
  wr.opcode = work.opcode;
  wr.send_flags = work.flags;
  wr.imm_data = htobe32(work.immediate);
  const auto to = reinterpret_cast<std::uintptr_t>(work.to);
  if (work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
    wr.wr.atomic = {to, work.compare, work.swap, work.rkey};
  else
    wr.wr.rdma = {to, work.rkey};
  return ibv_post_send(qp, &wr, &bad);
}

int post_receive(ibv_qp* qp, char* to, std::uint32_t length, std::uint32_t lkey, std::uint64_t id) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(to), length, lkey};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &piece;
  wr.num_sge = to != nullptr ? 1 : 0;
  return ibv_post_recv(qp, &wr, &bad);
}

}  // namespace oracle
