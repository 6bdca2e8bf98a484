/* The smallest RDMA program that shows what RDMA is: one queue pair writes into memory that another one has registered,
 * and the owner of that memory does nothing for it.
 *
 *   cc -Wall -o hello_rdma hello_rdma.c -libverbs
 *   softhca run -- ./hello_rdma
 *
 * Both queue pairs belong to this process, so that there is nothing to be exchanged but two numbers. With two processes
 * the numbers, the address and the key would travel over a socket; everything else would be the same.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 1, GID_INDEX = 3 }; /* 3: the IPv4 address, for RoCE v2 */

static void check(int good, const char *what) {
  if (good) return;
  perror(what);
  exit(1);
}

static struct ibv_qp *create_queue_pair(struct ibv_pd *pd, struct ibv_cq *cq) {
  struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  struct ibv_qp *qp = ibv_create_qp(pd, &attr);
  check(qp != NULL, "ibv_create_qp");
  return qp;
}

/* RESET to INIT, to "ready to receive", to "ready to send": who may do what, who the peer is, how patient we are. */
static void connect_to(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  check(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");

  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer, .min_rnr_timer = 12};
  rtr.ah_attr.is_global = 1;
  rtr.ah_attr.port_num = PORT;
  rtr.ah_attr.grh.dgid = *gid;
  rtr.ah_attr.grh.sgid_index = GID_INDEX;
  rtr.ah_attr.grh.hop_limit = 64;
  check(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "to RTR");

  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  check(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                     IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
}

int main(void) {
  struct ibv_device **devices = ibv_get_device_list(NULL);
  check(devices != NULL && devices[0] != NULL, "no RDMA device (softhca run -- ...)");
  struct ibv_context *context = ibv_open_device(devices[0]);
  check(context != NULL, "ibv_open_device");
  printf("device: %s\n", ibv_get_device_name(devices[0]));
  ibv_free_device_list(devices);

  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  check(pd != NULL && cq != NULL, "protection domain, completion queue");
  struct ibv_qp *writer = create_queue_pair(pd, cq), *owner = create_queue_pair(pd, cq);
  union ibv_gid gid;
  check(!ibv_query_gid(context, PORT, GID_INDEX, &gid), "ibv_query_gid");
  connect_to(writer, owner->qp_num, &gid);
  connect_to(owner, writer->qp_num, &gid);

  char source[] = "written by RDMA", target[sizeof source] = "";
  struct ibv_mr *from = ibv_reg_mr(pd, source, sizeof source, 0);
  struct ibv_mr *to = ibv_reg_mr(pd, target, sizeof target, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  check(from != NULL && to != NULL, "ibv_reg_mr");

  struct ibv_sge piece = {.addr = (uintptr_t)source, .length = sizeof source, .lkey = from->lkey};
  struct ibv_send_wr work = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &piece, .num_sge = 1};
  work.wr.rdma.remote_addr = (uintptr_t)target;
  work.wr.rdma.rkey = to->rkey;
  struct ibv_send_wr *bad;
  check(!ibv_post_send(writer, &work, &bad), "ibv_post_send");

  struct ibv_wc done;
  while (ibv_poll_cq(cq, 1, &done) == 0) {
  }
  printf("completion: %s\ntarget: %s\n", ibv_wc_status_str(done.status), target);

  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  ibv_destroy_qp(writer);
  ibv_destroy_qp(owner);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return done.status == IBV_WC_SUCCESS && strcmp(source, target) == 0 ? 0 : 1;
}
