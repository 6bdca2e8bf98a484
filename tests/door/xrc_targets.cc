// Two contexts of one program share an XRC domain by a file. One creates a target; the other, which
// has the SRQ, opens it. The target goes on when its creator has destroyed its handle. Prints the
// result of each step.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "loop_qps.h"

namespace {

struct Side {
  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_xrcd* xrcd;
};

Side open_side(ibv_device* device, int file, int flags) {
  Side side{};
  side.context = ibv_open_device(device);
  expect(side.context != nullptr, "open");
  side.pd = ibv_alloc_pd(side.context);
  side.cq = ibv_create_cq(side.context, 16, nullptr, nullptr, 0);
  ibv_xrcd_init_attr in{};
  in.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  in.fd = file;
  in.oflags = flags;
  side.xrcd = ibv_open_xrcd(side.context, &in);
  return side;
}

ibv_qp* create_qp(const Side& side, ibv_qp_type type) {
  ibv_qp_init_attr_ex in{};
  in.qp_type = type;
  if (type == IBV_QPT_XRC_RECV) {
    in.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    in.xrcd = side.xrcd;
  } else {
    in.comp_mask = IBV_QP_INIT_ATTR_PD;
    in.pd = side.pd;
    in.send_cq = side.cq;
    in.cap = {4, 0, 1, 0, 0};
  }
  auto* const qp = ibv_create_qp_ex(side.context, &in);
  expect(qp != nullptr, "QP");
  return qp;
}

ibv_wc_status completion_of(ibv_cq* cq) {
  ibv_wc done{};
  while (ibv_poll_cq(cq, 1, &done) == 0) {
  }
  return done.status;
}

}  // namespace

int main() {
  auto** const list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr, "no device");
  char name[] = "/tmp/softhca-xrc-XXXXXX";
  const int file = ::mkstemp(name);
  expect(file >= 0, "file");
  ::unlink(name);

  const auto none = open_side(list[0], file, 0);
  std::printf("without O_CREAT: %s\n", none.xrcd == nullptr ? std::strerror(errno) : "opened");
  const auto maker = open_side(list[0], file, O_CREAT);
  const auto taker = open_side(list[0], file, 0);
  expect(maker.xrcd != nullptr && taker.xrcd != nullptr, "XRC domain");

  ibv_srq_init_attr_ex shared{};
  shared.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD;
  shared.srq_type = IBV_SRQT_XRC;
  shared.xrcd = taker.xrcd;
  shared.cq = taker.cq;
  shared.pd = taker.pd;
  shared.attr = {16, 1, 0};
  auto* const srq = ibv_create_srq_ex(taker.context, &shared);
  expect(srq != nullptr, "SRQ");
  std::uint32_t srqn = 0;
  expect(ibv_get_srq_num(srq, &srqn) == 0, "number of the SRQ");

  auto* const target = create_qp(maker, IBV_QPT_XRC_RECV);
  ibv_qp_open_attr which{};
  which.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  which.qp_num = target->qp_num + 1;
  which.xrcd = taker.xrcd;
  which.qp_type = IBV_QPT_XRC_RECV;
  const auto* const missing = ibv_open_qp(taker.context, &which);
  std::printf("another's number: %s\n", missing == nullptr ? std::strerror(errno) : "opened");
  which.qp_num = target->qp_num;
  auto* const opened = ibv_open_qp(taker.context, &which);
  expect(opened != nullptr && opened->qp_num == target->qp_num, "open the target");

  auto* const initiator = create_qp(maker, IBV_QPT_XRC_SEND);
  ibv_gid gid;
  expect(ibv_query_gid(maker.context, 1, kGidIndex, &gid) == 0, "GID");
  connect(opened, initiator->qp_num, gid);  // by the context that has opened it
  connect(initiator, target->qp_num, gid);

  auto* const bytes = memory();
  auto* const out = ibv_reg_mr(maker.pd, bytes, 4096, kAccess);
  auto* const in = ibv_reg_mr(taker.pd, bytes + 4096, 4096, kAccess);
  expect(out != nullptr && in != nullptr, "registration");
  const auto post = [&](const char* text) {
    std::strcpy(bytes, text);
    ibv_sge from{reinterpret_cast<std::uintptr_t>(out->addr), 64, out->lkey};
    ibv_send_wr work{}, *bad;
    work.sg_list = &from;
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED;
    work.qp_type.xrc.remote_srqn = srqn;
    return ibv_post_send(initiator, &work, &bad);
  };
  const auto send = [&](const char* text) {
    ibv_sge to{reinterpret_cast<std::uintptr_t>(in->addr), 64, in->lkey};
    ibv_recv_wr receive{}, *bad;
    receive.sg_list = &to;
    receive.num_sge = 1;
    expect(ibv_post_srq_recv(srq, &receive, &bad) == 0, "receive");
    expect(post(text) == 0, "post");
    expect(completion_of(maker.cq) == IBV_WC_SUCCESS, "sent");
    expect(completion_of(taker.cq) == IBV_WC_SUCCESS, "received");
    return static_cast<const char*>(bytes + 4096);
  };
  std::printf("%s\n", send("opened"));
  std::printf("domain: %s\n", std::strerror(ibv_close_xrcd(taker.xrcd)));
  expect(ibv_destroy_qp(target) == 0, "close the target");
  std::printf("%s\n", send("its maker has closed it"));
  // libmlx5 cannot destroy a QP that it has opened: it would free a doorbell record that such a QP
  // lacks. The QP is destroyed with its context, in the device's next turn.
  expect(ibv_close_device(taker.context) == 0, "close the other context");
  expect(post("nobody has it") == 0, "post");
  std::printf("%s\n", ibv_wc_status_str(completion_of(maker.cq)));
  return 0;
}
