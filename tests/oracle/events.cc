// Chapter events: asynchronous events, completion channels, and SRQ events.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>

#include "world.h"

namespace oracle {
namespace {

/// Prints the next asynchronous event, or that none comes. Acknowledges it.
void event(World& world, const std::string& name, const ibv_qp* qp = nullptr,
           int milliseconds = 5000) {
  pollfd wait{world.context->async_fd, POLLIN, 0};
  ibv_async_event got{};
  if (::poll(&wait, 1, milliseconds) != 1) {
    line(name, "nothing comes");
    return;
  }
  if (did(name + ", get", [&] { return ibv_get_async_event(world.context, &got); }) != 0) return;
  line(name, text("%s%s", ibv_event_type_str(got.event_type),
                  qp != nullptr && got.element.qp == qp ? " of the QP" : ""));
  ibv_ack_async_event(&got);
}

void silence(World& world, const std::string& name) { event(world, name, nullptr, 200); }

void send(World& world, ibv_qp* qp, std::uint32_t length = 8, unsigned flags = 0) {
  Work work;
  work.from = world.bytes;
  work.length = length;
  work.lkey = world.mr->lkey;
  work.flags |= flags;
  need(post(qp, work) == 0, "post");
}

ibv_qp* with_srq(World& world, ibv_srq* srq) {
  ibv_qp_init_attr in{};
  in.send_cq = in.recv_cq = world.cq;
  in.srq = srq;
  in.cap = {16, 0, 1, 0, 0};
  in.qp_type = IBV_QPT_RC;
  auto* const qp = ibv_create_qp(world.pd, &in);
  need(qp != nullptr, "QP");
  return qp;
}

int to_error(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void post_to(World& world, ibv_srq* srq, int count) {
  for (int i = 0; i != count; ++i) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(world.bytes), 64, world.mr->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = 100 + i;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    const int posted = ibv_post_srq_recv(srq, &wr, &bad);
    if (posted != 0) {
      line(text("receive %d", i), outcome(posted, errno));
      return;
    }
  }
}

/// A completion channel with a CQ, and a pair whose completions arrive there.
struct Channel {
  explicit Channel(World& world) : channel(ibv_create_comp_channel(world.context)) {
    cq = ibv_create_cq(world.context, 64, &world, channel, 0);
    need(channel != nullptr && cq != nullptr, "channel");
    own = world.cq;
    world.cq = cq;
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  }
  void look(const std::string& name, int milliseconds = 5000) {
    pollfd wait{channel->fd, POLLIN, 0};
    ::poll(&wait, 1, milliseconds);
    ibv_cq* of = nullptr;
    void* context = nullptr;
    errno = 0;
    const int got = ibv_get_cq_event(channel, &of, &context);
    line(name, got == 0 ? (of == cq ? "an event of the CQ" : "of another") : outcome(got, errno));
    if (got == 0) ibv_ack_cq_events(of, 1);
  }
  ibv_comp_channel* channel;
  ibv_cq* cq;
  ibv_cq* own;
};

}  // namespace

ORACLE_CASE(events, last_wqe) {
  World world;
  auto* const qp = with_srq(world, world.srq());
  for (const auto state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr reset{};
    ibv_modify_qp(qp, &reset, IBV_QP_STATE);
    bring(world, qp, Kind::kRc, state);
    did(text("from %s", state_name(state)), [&] { return to_error(qp); });
    event(world, "event", qp);
    did("again", [&] { return to_error(qp); });
    silence(world, "then");
  }
}
ORACLE_CASE(events, srq_limit) {
  World world;
  auto* const srq = world.srq();
  auto* const one = create(world, Kind::kRc);
  auto* const other = with_srq(world, srq);
  need(bring(world, one, Kind::kRc, IBV_QPS_RTS, other->qp_num) == 0, "QP");
  need(bring(world, other, Kind::kRc, IBV_QPS_RTS, one->qp_num) == 0, "QP");
  post_to(world, srq, 10);
  ibv_srq_attr attr{0, 0, 8};
  did("arm", [&] { return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT); });
  silence(world, "armed");
  for (int i = 0; i != 4; ++i) {
    send(world, one);
    line("completion", describe(completion(world.cq), one, other));
    line("completion", describe(completion(world.cq), one, other));
    event(world, text("after %d", i + 1), nullptr, 300);
    did("query", [&] { return ibv_query_srq(srq, &attr); });
    number("limit", attr.srq_limit);
  }
}
ORACLE_CASE(events, comm_established) {
  World world;
  auto* const one = create(world, Kind::kRc);
  auto* const other = create(world, Kind::kRc);
  need(bring(world, one, Kind::kRc, IBV_QPS_RTS, other->qp_num) == 0, "QP");
  need(bring(world, other, Kind::kRc, IBV_QPS_RTR, one->qp_num) == 0, "QP");
  post_receive(other, world.bytes, 64, world.mr->lkey);
  send(world, one);
  line("completion", describe(completion(world.cq), one, other));
  line("completion", describe(completion(world.cq), one, other));
  event(world, "event", other, 1000);
}
ORACLE_CASE(events, access_error) {
  World world;
  Pair pair(world);
  Work work;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.from = world.bytes;
  work.length = 8;
  work.lkey = world.mr->lkey;
  work.to = world.bytes;
  work.rkey = 0x12345600;
  need(post(pair.one, work) == 0, "post");
  line("completion", describe(completion(world.cq), pair.one, pair.other));
  event(world, "event", pair.other);
  silence(world, "then");
}
ORACLE_CASE(events, sq_drained) {
  World world;
  Pair pair(world);
  for (const int wanted : {0, 1}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = static_cast<std::uint8_t>(wanted);
    did("to SQD",
        [&] { return ibv_modify_qp(pair.one, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY); });
    event(world, text("asked %d", wanted), pair.one, 500);
    attr.qp_state = IBV_QPS_RTS;
    did("to RTS", [&] { return ibv_modify_qp(pair.one, &attr, IBV_QP_STATE); });
  }
}
ORACLE_CASE(events, overrun) {
  World world(0, 1 << 20, 4);
  Pair pair(world);
  for (int i = 0; i != 12; ++i) {
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.from = work.to = world.bytes;
    work.length = 8;
    work.lkey = work.rkey = world.mr->lkey;
    if (post(pair.one, work) != 0) break;
  }
  event(world, "first");
  event(world, "second");
  silence(world, "then");
}
// A second context of the same file has a descriptor for events of its own.
ORACLE_CASE(events, imported) {
  World world;
  auto second = world;
  second.context = made("import", [&] { return ibv_import_device(::dup(world.context->cmd_fd)); });
  if (second.context == nullptr) return;
  second.pd = ibv_alloc_pd(second.context);
  second.cq = ibv_create_cq(second.context, 64, nullptr, nullptr, 0);
  need(second.pd != nullptr && second.cq != nullptr, "objects of the second context");
  auto* const qp = with_srq(second, second.srq());
  need(bring(second, qp, Kind::kRc, IBV_QPS_RTS) == 0, "QP");
  did("to error", [&] { return to_error(qp); });
  event(second, "second context", qp);
  silence(world, "first context");
}
ORACLE_CASE(events, file) {
  World world;
  const int file = world.context->async_fd;
  char byte = 0;
  int bytes = 0;
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) | O_NONBLOCK);
  ibv_async_event got{};
  did("get, nothing there", [&] { return ibv_get_async_event(world.context, &got); });
  moved("read a byte", [&] { return ::read(file, &byte, 1); });
  moved("write a byte", [&] { return ::write(file, &byte, 1); });
  moved("seek", [&] { return ::lseek(file, 0, SEEK_SET); });
  did("FIONREAD", [&] { return ::ioctl(file, FIONREAD, &bytes); });
  auto* const channel = ibv_create_comp_channel(world.context);
  ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  moved("channel: read a byte", [&] { return ::read(channel->fd, &byte, 1); });
  moved("channel: write a byte", [&] { return ::write(channel->fd, &byte, 1); });
}
ORACLE_CASE(events, one_by_one) {
  World world;
  const int file = world.context->async_fd;
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) | O_NONBLOCK);
  for (int i = 0; i != 2; ++i) {
    auto* const qp = with_srq(world, world.srq());
    need(bring(world, qp, Kind::kRc, IBV_QPS_RTS) == 0 && to_error(qp) == 0, "QP in ERR");
  }
  // Each call gives the events time to arrive.
  ibv_port_attr port{};
  for (int i = 0; i != 100; ++i) ibv_query_port(world.context, 1, &port);
  char bytes[64] = {};
  for (int i = 0; i != 2; ++i) {
    pollfd wait{file, POLLIN, 0};
    ::poll(&wait, 1, 5000);
    moved("read with room for both", [&] { return ::read(file, bytes, sizeof bytes); });
  }
  moved("read again", [&] { return ::read(file, bytes, sizeof bytes); });
}
ORACLE_CASE(channels, arm) {
  World world;
  Channel channel(world);
  Pair pair(world);
  channel.look("nothing armed", 200);
  post_receive(pair.other, world.bytes, 64, world.mr->lkey);
  send(world, pair.one);
  channel.look("not armed", 300);
  did("arm", [&] { return ibv_req_notify_cq(channel.cq, 0); });
  channel.look("armed with CQEs unread", 300);
  ibv_wc wc{};
  while (ibv_poll_cq(channel.cq, 1, &wc) == 1)
    line("completion", describe(wc, pair.one, pair.other));
  for (const int solicited : {0, 1}) {
    for (const unsigned flags : {0u, static_cast<unsigned>(IBV_SEND_SOLICITED)}) {
      did(text("arm %d", solicited), [&] { return ibv_req_notify_cq(channel.cq, solicited); });
      post_receive(pair.other, world.bytes, 64, world.mr->lkey);
      Work work;
      work.from = world.bytes;
      work.length = 8;
      work.lkey = world.mr->lkey;
      work.flags = flags;
      need(post(pair.one, work) == 0, "post");
      channel.look(text("armed %d, SEND with %u", solicited, flags), 500);
      channel.look("again", 100);
      while (ibv_poll_cq(channel.cq, 1, &wc) == 1)
        line("completion", describe(wc, pair.one, pair.other));
    }
  }
}
ORACLE_CASE(channels, arm_twice) {
  World world;
  Channel channel(world);
  Pair pair(world);
  for (const int first : {0, 1}) {
    for (const int second : {0, 1}) {
      ibv_req_notify_cq(channel.cq, first);
      ibv_req_notify_cq(channel.cq, second);
      post_receive(pair.other, world.bytes, 64, world.mr->lkey);
      Work work;
      work.from = world.bytes;
      work.length = 8;
      work.lkey = world.mr->lkey;
      work.flags = 0;
      need(post(pair.one, work) == 0, "post");
      channel.look(text("armed %d, then %d", first, second), 500);
      ibv_wc wc{};
      while (ibv_poll_cq(channel.cq, 1, &wc) == 1)
        line("completion", describe(wc, pair.one, pair.other));
    }
  }
}
ORACLE_CASE(channels, error_is_solicited) {
  World world;
  Channel channel(world);
  Pair pair(world);
  did("arm for solicited", [&] { return ibv_req_notify_cq(channel.cq, 1); });
  post_receive(pair.one, world.bytes, 64, world.mr->lkey);
  did("to ERR", [&] { return to_error(pair.one); });
  channel.look("a flush");
}
ORACLE_CASE(srqs, limits) {
  World world;
  ibv_srq_init_attr in{};
  in.attr = {10, 1, 0};
  auto* const srq = ibv_create_srq(world.pd, &in);
  need(srq != nullptr, "SRQ");
  number("room", in.attr.max_wr);
  post_to(world, srq, 40);
  std::vector<ibv_sge> pieces(8,
                              {reinterpret_cast<std::uintptr_t>(world.bytes), 8, world.mr->lkey});
  auto* const fresh = ibv_create_srq(world.pd, &in);
  for (int count = -1; count != 8; ++count) {
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = pieces.data();
    wr.num_sge = count;
    did(text("%d pieces", count), [&] { return ibv_post_srq_recv(fresh, &wr, &bad); });
  }
}

}  // namespace oracle
