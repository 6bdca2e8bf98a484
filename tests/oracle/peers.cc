// Chapter peers: QPs whose peer is stopped, killed, reset or gone, and memory that disappears.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "world.h"

namespace oracle {
namespace {

struct Card {
  ibv_gid gid;
  std::uint32_t number, rkey;
  char* at;
};

/// Another process with a QP. The two processes exchange their cards.
class Peer {
 public:
  explicit Peer(World& world, ibv_qp* qp) {
    int to[2], from[2];
    need(::pipe(to) == 0 && ::pipe(from) == 0, "pipe");
    to_ = to[1], from_ = from[0];
    process_ = ::fork();
    if (process_ == 0) be(to[0], from[1]);
    Card own{world.gid, qp->qp_num, world.mr->rkey, world.bytes};
    need(::write(to_, &own, sizeof own) == sizeof own, "write");
    need(::read(from_, &card, sizeof card) == sizeof card, "the peer's card");
  }
  void signal(int number) { ::kill(process_, number); }
  /// Sends it a command and waits until it is done.
  void tell(char what) {
    char done = 0;
    need(::write(to_, &what, 1) == 1 && ::read(from_, &done, 1) == 1, "the peer");
  }
  void end() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Card card{};

 private:
  [[noreturn]] static void be(int in, int out);
  int to_, from_;
  pid_t process_;
};

/// Like `bring`, but to a peer with another GID, with few retries.
int join(World& world, ibv_qp* qp, const Card& peer) {
  auto from = IBV_QPS_RESET;
  for (const auto to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    auto all = attributes(world, qp, to, peer.number);
    all.ah_attr.grh.dgid = peer.gid;
    all.timeout = 14;
    all.retry_cnt = 2;
    const int failed = ibv_modify_qp(qp, &all, required(Kind::kRc, from, to));
    if (failed != 0) return failed;
    from = to;
  }
  return 0;
}

void Peer::be(int in, int out) {
  World world;
  auto* const qp = create(world, Kind::kRc);
  Card other{}, own{world.gid, qp->qp_num, world.mr->rkey, world.bytes};
  if (::read(in, &other, sizeof other) != sizeof other) ::_exit(1);
  errno = join(world, qp, other);
  need(errno == 0, "the peer's QP");
  for (int i = 0; i != 4; ++i) post_receive(qp, world.bytes + 8192, 64, world.mr->lkey);
  if (::write(out, &own, sizeof own) != sizeof own) ::_exit(1);
  char what = 0;
  while (::read(in, &what, 1) == 1) {
    ibv_qp_attr attr{};
    attr.qp_state = what == 'e' ? IBV_QPS_ERR : IBV_QPS_RESET;
    if (what == 'e' || what == 'r') ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    if (what == 'd') ibv_destroy_qp(qp);
    if (what == 'm') ibv_dereg_mr(world.mr);
    if (what == 'u') ::munmap(world.bytes, world.size);
    if (what == 'x') ::_exit(0);
    if (::write(out, &what, 1) != 1) break;
  }
  ::_exit(0);
}

Work message(World& world, const Card& card, ibv_wr_opcode opcode) {
  Work work;
  work.opcode = opcode;
  work.from = world.bytes;
  work.length = 8;
  work.lkey = world.mr->lkey;
  work.to = card.at;
  work.rkey = card.rkey;
  return work;
}

void exchange(World& world, ibv_qp* qp, const Card& card, const std::string& name) {
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    const auto words = text("%s, opcode %d", name.c_str(), opcode);
    if (did(words + ", post", [&] { return post(qp, message(world, card, opcode)); }) == 0)
      line(words, describe(completion(world.cq, 30), qp));
  }
}

void course(char what, const char* name) {
  // The peer's process must open the device first, because each process has its own address.
  World world;
  auto* const qp = create(world, Kind::kRc);
  need(qp != nullptr, "QP");
  Peer peer(world, qp);
  errno = join(world, qp, peer.card);
  need(errno == 0, "QP");
  exchange(world, qp, peer.card, "before");
  if (what == 'k') {
    peer.signal(SIGKILL);
  } else if (what == 's') {
    peer.signal(SIGSTOP);
    post(qp, message(world, peer.card, IBV_WR_RDMA_WRITE));
    ::usleep(100000);
    peer.signal(SIGCONT);
    line(name, describe(completion(world.cq, 30), qp));
  } else if (what == 'x') {
    ::kill(0, 0);
    peer.signal(SIGTERM);
  } else {
    peer.tell(what);
  }
  if (what == 'k' || what == 'x') ::usleep(300000);
  exchange(world, qp, peer.card, name);
  peer.end();
}

}  // namespace

ORACLE_CASE(peers, in_error, 120) { course('e', "in ERR"); }
ORACLE_CASE(peers, in_reset, 120) { course('r', "in RESET"); }
ORACLE_CASE(peers, destroyed, 120) { course('d', "destroyed"); }
ORACLE_CASE(peers, region_gone, 120) { course('m', "region gone"); }
ORACLE_CASE(peers, killed, 120) { course('k', "killed"); }
ORACLE_CASE(peers, ended, 120) { course('x', "ended"); }
ORACLE_CASE(peers, stopped, 120) { course('s', "stopped"); }
ORACLE_CASE(peers, receiver_not_ready, 120) {
  World world;
  Pair pair(world);
  for (const int retries : {0, 1, 2}) {
    ibv_qp_attr reset{};
    for (auto* const qp : {pair.one, pair.other}) ibv_modify_qp(qp, &reset, IBV_QP_STATE);
    bring(world, pair.other, Kind::kRc, IBV_QPS_RTS, pair.one->qp_num);
    bring(world, pair.one, Kind::kRc, IBV_QPS_RTR, pair.other->qp_num);
    auto all = attributes(world, pair.one, IBV_QPS_RTS, pair.other->qp_num);
    all.rnr_retry = static_cast<std::uint8_t>(retries);
    ibv_modify_qp(pair.one, &all, required(Kind::kRc, IBV_QPS_RTR, IBV_QPS_RTS));
    Work work;
    work.from = world.bytes;
    work.length = 8;
    work.lkey = world.mr->lkey;
    did("post", [&] { return post(pair.one, work); });
    line(text("rnr_retry %d", retries), describe(completion(world.cq, 30), pair.one, pair.other));
  }
}

}  // namespace oracle
