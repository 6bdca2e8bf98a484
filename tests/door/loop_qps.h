// Queue pairs of one program, on one device or two, connected with each other by libibverbs alone.
#pragma once

#include <infiniband/verbs.h>
#include <sched.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

inline constexpr std::size_t kSize = 1 << 20;
inline constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
inline constexpr std::uint8_t kGidIndex = 3;

inline void expect(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

/// Keeps this thread, and those that it creates, on one processor. The thread of the devices then
/// does not work beside the program, which drives the devices itself: how often it polls is a count
/// that no free processor changes.
inline void stay_on_one_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  expect(::sched_setaffinity(0, sizeof one, &one) == 0, "affinity");
}

inline void connect(ibv_qp* qp, std::uint32_t peer, const ibv_gid& gid) {
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

inline char* memory() {
  void* const got =
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(got != MAP_FAILED, "mmap");
  return static_cast<char*>(got);
}

/// A device with a QP that a QP of another device may be connected with.
struct Side {
  ibv_context* context;
  ibv_cq* cq;
  ibv_qp* qp;
  ibv_mr* key;
  char* bytes;
  ibv_gid gid;
};

/// Opens the device, with a QP and memory that is registered.
inline Side open_side(ibv_device* device) {
  Side side{};
  side.context = ibv_open_device(device);
  expect(side.context != nullptr, "open");
  auto* const pd = ibv_alloc_pd(side.context);
  side.cq = ibv_create_cq(side.context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr in{};
  in.send_cq = in.recv_cq = side.cq;
  in.qp_type = IBV_QPT_RC;
  in.cap = {4, 4, 1, 1, 0};
  side.qp = ibv_create_qp(pd, &in);
  side.bytes = memory();
  side.key = ibv_reg_mr(pd, side.bytes, kSize, kAccess);
  expect(side.qp != nullptr && side.key != nullptr, "QP");
  expect(ibv_query_gid(side.context, 1, kGidIndex, &side.gid) == 0, "GID");
  return side;
}

/// The queue pairs and their CQ. If `channel` is not null, the CQ reports its events there.
struct Loop {
  ibv_context* context = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp* peer = nullptr;

  explicit Loop(bool events = false, std::uint32_t inline_bytes = 0) {
    auto** const list = ibv_get_device_list(nullptr);
    expect(list != nullptr && list[0] != nullptr, "no device");
    context = ibv_open_device(list[0]);
    expect(context != nullptr, "open");
    if (events) channel = ibv_create_comp_channel(context);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, nullptr, channel, 0);
    ibv_gid gid;
    expect(ibv_query_gid(context, 1, kGidIndex, &gid) == 0, "GID");
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {4, 4, 1, 1, inline_bytes};
    qp = ibv_create_qp(pd, &attributes);
    peer = ibv_create_qp(pd, &attributes);
    expect(qp != nullptr && peer != nullptr, "QPs");
    connect(qp, peer->qp_num, gid);
    connect(peer, qp->qp_num, gid);
  }
};
