// Chapter messages: what arrives, with every field of both completions, and failures on both sides.
#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "memory.h"

namespace oracle {
namespace {

/// The peer posts a receive of `room` bytes. Both completions become lines. True if both succeed.
bool exchange(World& world, Pair& pair, const Work& work, std::uint32_t room,
              const std::string& name) {
  auto* const target = world.bytes + world.size / 2;
  const bool receives = work.opcode == IBV_WR_SEND || work.opcode == IBV_WR_SEND_WITH_IMM ||
                        work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
                        work.opcode == IBV_WR_SEND_WITH_INV;
  if (receives) post_receive(pair.other, target, room, world.mr->lkey);
  errno = 0;
  const int posted = post(pair.one, work);
  line(name + ", post", outcome(posted, errno));
  if (posted != 0) return false;
  bool good = true;
  for (int i = 0; i != (receives ? 2 : 1); ++i) {
    const auto wc = completion(world.cq);
    good &= wc.status == IBV_WC_SUCCESS;
    const bool of_sender = wc.qp_num == pair.one->qp_num;
    line(name + (of_sender ? ", sender" : ", receiver"), describe(wc, pair.one, pair.other));
  }
  return good;
}

Work message(World& world, ibv_wr_opcode opcode, std::uint32_t length, unsigned flags = 0) {
  Work work;
  work.opcode = opcode;
  work.from = world.bytes;
  work.length = length;
  work.lkey = world.mr->lkey;
  work.to = world.bytes + world.size / 2;
  work.rkey = world.mr->rkey;
  work.flags = IBV_SEND_SIGNALED | flags;
  work.immediate = 0x12345678;
  return work;
}

struct Named {
  const char* name;
  ibv_wr_opcode opcode;
};
constexpr Named kOperations[] = {{"SEND", IBV_WR_SEND},
                                 {"SEND_IMM", IBV_WR_SEND_WITH_IMM},
                                 {"WRITE", IBV_WR_RDMA_WRITE},
                                 {"WRITE_IMM", IBV_WR_RDMA_WRITE_WITH_IMM},
                                 {"READ", IBV_WR_RDMA_READ},
                                 {"CMP_SWP", IBV_WR_ATOMIC_CMP_AND_SWP},
                                 {"FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD}};

/// Each operation with messages of each size.
void sizes(Kind kind) {
  World world;
  Pair pair(world, kind);
  for (const auto& [name, opcode] : kOperations) {
    for (const unsigned length :
         {0u, 1u, 7u, 8u, 9u, 1023u, 1024u, 1025u, 4096u, 65536u, 500000u}) {
      const auto words = text("%s of %u", name, length);
      if (exchange(world, pair, message(world, opcode, length), 1 << 19, words)) continue;
      ibv_qp_attr attr{};
      ibv_qp_init_attr in{};
      ibv_query_qp(pair.one, &attr, IBV_QP_STATE, &in);
      line(words + ", then", state_name(attr.qp_state));
      pair = Pair(world, kind);
    }
  }
}

/// Each flag and each opcode that ibv_post_send accepts.
void posted(Kind kind) {
  World world;
  Pair pair(world, kind);
  for (const int opcode : {0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 14, 15, 255}) {
    for (const unsigned flags : {0u, 1u, 4u, 8u, 16u, 12u}) {
      const auto work = message(world, static_cast<ibv_wr_opcode>(opcode), 8, flags);
      if (exchange(world, pair, work, 64, text("opcode %d, flags %u", opcode, flags))) continue;
      ibv_destroy_qp(pair.one);
      ibv_destroy_qp(pair.other);
      pair = Pair(world, kind);
    }
  }
}

/// One failure: completions and states of both ends, and the flushed requests.
class Failure {
 public:
  explicit Failure(World& world, Kind kind = Kind::kRc) : world_(world), pair_(world, kind) {}

  Pair& pair() { return pair_; }
  void receives(char* at, std::uint32_t length, std::uint32_t lkey) {
    post_receive(pair_.other, at, length, lkey);
  }
  void run(const std::string& name, const Work& work) {
    errno = 0;
    const int got = post(pair_.one, work);
    line(name + ", post", outcome(got, errno));
    if (got != 0) return;
    sender(name);
    state(name + ", sender", pair_.one);
    state(name + ", receiver", pair_.other);
  }

 private:
  void sender(const std::string& name) {
    for (bool sent = false; !sent;) {
      const auto wc = completion(world_.cq);
      sent = wc.qp_num == pair_.one->qp_num || wc.qp_num == 0;
      line(name + (sent ? ", sender" : ", receiver"), describe(wc, pair_.one, pair_.other));
    }
    ibv_wc wc{};
    while (ibv_poll_cq(world_.cq, 1, &wc) == 1)
      line(name + ", more", describe(wc, pair_.one, pair_.other));
  }
  void state(const std::string& name, ibv_qp* qp) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr in{};
    const int failed = ibv_query_qp(qp, &attr, IBV_QP_STATE, &in);
    line(name + " is in", failed != 0 ? error_name(failed) : state_name(attr.qp_state));
  }

  World& world_;
  Pair pair_;
};

std::uint32_t key_with(World& world, int access, bool remote) {
  auto* const mr = ibv_reg_mr(world.pd, world.bytes, world.size, access);
  need(mr != nullptr, "MR");
  return remote ? mr->rkey : mr->lkey;
}

void local_errors(World& world) {
  const auto trial = [&](const std::string& name, const Named& operation,
                         const std::function<void(Work&)>& change) {
    Failure failure(world);
    auto work = message(world, operation.opcode, 8);
    change(work);
    failure.receives(world.bytes + world.size / 2, 64, world.mr->lkey);
    failure.run(text("%s, %s", operation.name, name.c_str()), work);
  };
  auto* const foreign_pd = ibv_alloc_pd(world.context);
  auto* const foreign = ibv_reg_mr(foreign_pd, world.bytes, world.size, kAllAccess);
  const auto read_only = key_with(world, 0, false);
  for (const auto& operation : kOperations) {
    trial("unknown lkey", operation, [](Work& work) { work.lkey = 0x12345600; });
    trial("lkey of another variant", operation, [](Work& work) { work.lkey ^= 1; });
    trial("lkey of another PD", operation, [&](Work& work) { work.lkey = foreign->lkey; });
    trial("read-only lkey", operation, [&](Work& work) { work.lkey = read_only; });
    trial("before the region", operation, [](Work& work) { work.from -= 4; });
    trial("behind the region", operation, [&](Work& work) { work.from += world.size - 4; });
    trial("9 bytes", operation, [](Work& work) { work.length = 9; });
    trial("1 GiB and a byte", operation, [](Work& work) { work.length = (1u << 30) + 1; });
    trial("2 GiB", operation, [](Work& work) { work.length = 1u << 31; });
  }
}

void remote_errors(World& world) {
  const auto trial = [&](const std::string& name, const Named& operation,
                         const std::function<void(Work&)>& change) {
    Failure failure(world);
    auto work = message(world, operation.opcode, 8);
    change(work);
    if (operation.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) failure.receives(nullptr, 0, 0);
    failure.run(text("%s, %s", operation.name, name.c_str()), work);
  };
  auto* const foreign_pd = ibv_alloc_pd(world.context);
  auto* const foreign = ibv_reg_mr(foreign_pd, world.bytes, world.size, kAllAccess);
  for (const auto& operation : kOperations) {
    if (operation.opcode == IBV_WR_SEND || operation.opcode == IBV_WR_SEND_WITH_IMM) continue;
    trial("unknown rkey", operation, [](Work& work) { work.rkey = 0x12345600; });
    trial("rkey of another variant", operation, [](Work& work) { work.rkey ^= 1; });
    trial("rkey of another PD", operation, [&](Work& work) { work.rkey = foreign->rkey; });
    for (const int access : {0, 1, 3, 5, 9}) {
      const auto rkey = key_with(world, access, true);
      trial(text("rkey with access %d", access), operation, [=](Work& work) { work.rkey = rkey; });
    }
    trial("before the region", operation, [&](Work& work) { work.to = world.bytes - 4; });
    trial("behind the region", operation,
          [&](Work& work) { work.to = world.bytes + world.size - 4; });
    trial("not aligned", operation, [](Work& work) { work.to += 4; });
    trial("nothing, unknown rkey", operation,
          [](Work& work) { work.length = 0, work.rkey = 0x12345600; });
  }
}

/// The responder's QP does not allow the operation.
void qp_access(World& world) {
  for (const int access : {0, 1, 2, 4, 8}) {
    for (const auto& operation : kOperations) {
      Failure failure(world);
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_RTS;
      attr.qp_access_flags = static_cast<unsigned>(access);
      ibv_modify_qp(failure.pair().other, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
      failure.receives(world.bytes, 64, world.mr->lkey);
      failure.run(text("%s, QP access %d", operation.name, access),
                  message(world, operation.opcode, 8));
    }
  }
}

void receive_errors(World& world, Kind kind) {
  const auto name = [](const char* what) { return std::string(what); };
  const auto send = message(world, IBV_WR_SEND, 100);
  {
    Failure failure(world, kind);
    failure.receives(world.bytes, 99, world.mr->lkey);
    failure.run(name("too short"), send);
  }
  {
    Failure failure(world, kind);
    failure.receives(world.bytes, 100, 0x12345600);
    failure.run(name("unknown lkey"), send);
  }
  {
    Failure failure(world, kind);
    failure.receives(world.bytes, 100, key_with(world, 0, false));
    failure.run(name("read-only lkey"), send);
  }
  {
    Failure failure(world, kind);
    failure.receives(world.bytes + world.size - 50, 100, world.mr->lkey);
    failure.run(name("behind the region"), send);
  }
  {
    Failure failure(world, kind);
    failure.receives(nullptr, 0, 0);
    failure.run(name("no pieces"), send);
  }
}

/// Work that is outstanding when a QP enters ERR, and work posted after.
void flushes(Kind kind) {
  World world;
  Pair pair(world, kind);
  for (int i = 0; i != 4; ++i) post_receive(pair.one, world.bytes, 64, world.mr->lkey, 10 + i);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  did("to ERR", [&] { return ibv_modify_qp(pair.one, &attr, IBV_QP_STATE); });
  for (int i = 0; i != 4; ++i)
    line("receive", describe(completion(world.cq), pair.one, pair.other));
  did("post", [&] { return post(pair.one, message(world, IBV_WR_SEND, 8)); });
  line("send", describe(completion(world.cq), pair.one, pair.other));
  did("post a receive", [&] { return post_receive(pair.one, world.bytes, 64, world.mr->lkey); });
  line("receive", describe(completion(world.cq), pair.one, pair.other));
}

/// Posts that ibv_post_send and ibv_post_recv themselves refuse.
void refused_posts(Kind kind) {
  World world;
  auto* const qp = create(world, kind);
  need(qp != nullptr, "QP");
  for (const auto state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    auto all = attributes(world, qp, state);
    const auto from = static_cast<ibv_qp_state>(state - 1);
    if (state != IBV_QPS_RESET) ibv_modify_qp(qp, &all, required(kind, from, state));
    did(text("send in %s", state_name(state)),
        [&] { return post(qp, message(world, IBV_WR_SEND, 8)); });
    did(text("receive in %s", state_name(state)),
        [&] { return post_receive(qp, world.bytes, 64, world.mr->lkey); });
  }
  auto* const quiet = create(world, kind);
  need(quiet != nullptr && bring(world, quiet, kind, IBV_QPS_INIT) == 0, "QP in INIT");
  for (int i = 0; i != 20; ++i)
    did(text("receive %d of 16", i),
        [&] { return post_receive(quiet, world.bytes, 64, world.mr->lkey); });
  std::vector<ibv_sge> pieces(40,
                              {reinterpret_cast<std::uintptr_t>(world.bytes), 8, world.mr->lkey});
  for (int count = -1; count != 40; ++count) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = pieces.data();
    wr.num_sge = count;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    did(text("send %d pieces inline", count), [&] { return ibv_post_send(qp, &wr, &bad); });
  }
}

}  // namespace

ORACLE_CASE(messages, sizes_rc) { sizes(Kind::kRc); }
ORACLE_CASE(messages, sizes_uc) { sizes(Kind::kUc); }
ORACLE_CASE(messages, posted_rc) { posted(Kind::kRc); }
ORACLE_CASE(messages, refused_rc) { refused_posts(Kind::kRc); }
ORACLE_CASE(messages, refused_uc) { refused_posts(Kind::kUc); }
ORACLE_CASE(messages, flushes_rc) { flushes(Kind::kRc); }
ORACLE_CASE(messages, flushes_uc) { flushes(Kind::kUc); }
ORACLE_CASE(errors, local, 120) {
  World world;
  local_errors(world);
}
ORACLE_CASE(errors, remote, 120) {
  World world;
  remote_errors(world);
}
ORACLE_CASE(errors, qp_access, 120) {
  World world;
  qp_access(world);
}
ORACLE_CASE(errors, receive_rc) {
  World world;
  receive_errors(world, Kind::kRc);
}

}  // namespace oracle
