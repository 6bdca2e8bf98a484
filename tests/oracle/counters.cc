// Chapters counters and query: counters that messages move, and the attributes of a QP before and
// after.
#include <dirent.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "world.h"

namespace oracle {
namespace {

using Counters = std::map<std::string, long long>;

/// Linux answers reads of hw_counters from a cache, for as many milliseconds as `lifespan` says.
void outlast_cache(int device) {
  const auto path = text("/sys/class/infiniband/mlx5_%d/ports/1/hw_counters/lifespan", device);
  int milliseconds = 0;
  auto* const file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return;
  if (std::fscanf(file, "%d", &milliseconds) == 1) ::poll(nullptr, 0, 2 * milliseconds);
  std::fclose(file);
}

Counters read_counters(int device) {
  outlast_cache(device);
  Counters all;
  for (const auto* const folder : {"counters", "hw_counters"}) {
    const auto root = text("/sys/class/infiniband/mlx5_%d/ports/1/%s", device, folder);
    auto* const open = ::opendir(root.c_str());
    if (open == nullptr) continue;
    while (const auto* const entry = ::readdir(open)) {
      const std::string name = entry->d_name;
      if (name[0] == '.' || name == "lifespan") continue;
      auto* const file = std::fopen((root + "/" + name).c_str(), "r");
      long long value = -1;
      if (file == nullptr) continue;
      if (std::fscanf(file, "%lld", &value) != 1) value = -1;
      std::fclose(file);
      all[std::string(folder) + "/" + name] = value;
    }
    ::closedir(open);
  }
  return all;
}

/// Prints the counters that have moved, and by how much.
void moved(const std::string& name, const Counters& before, const Counters& after) {
  for (const auto& [counter, value] : after) {
    const auto old = before.find(counter);
    const auto by = old == before.end() ? value : value - old->second;
    if (by != 0) line(text("%s, %s", name.c_str(), counter.c_str()), text("+%lld", by));
  }
  number(name + ", of", static_cast<long long>(after.size()));
}

void send(World& world, Pair& pair, ibv_wr_opcode opcode, std::uint32_t length, int times) {
  for (int i = 0; i != times; ++i) {
    Work work;
    work.opcode = opcode;
    work.from = world.bytes;
    work.length = length;
    work.lkey = world.mr->lkey;
    work.to = world.bytes + world.size / 2;
    work.rkey = world.mr->rkey;
    const bool receives = opcode == IBV_WR_SEND;
    if (receives) post_receive(pair.other, work.to, length, work.lkey);
    need(post(pair.one, work) == 0, "post");
    for (int done = 0; done != (receives ? 2 : 1); ++done)
      need(completion(world.cq).status == IBV_WC_SUCCESS, "completion");
  }
}

struct Traffic {
  const char* name;
  ibv_wr_opcode opcode;
  std::uint32_t length;
};
constexpr Traffic kTraffic[] = {{"SEND", IBV_WR_SEND, 10000},
                                {"WRITE", IBV_WR_RDMA_WRITE, 10000},
                                {"READ", IBV_WR_RDMA_READ, 10000},
                                {"FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
                                {"CMP_SWP", IBV_WR_ATOMIC_CMP_AND_SWP, 8}};

void query(ibv_qp* qp, ibv_qp* peer, const std::string& name) {
  ibv_qp_attr a{};
  ibv_qp_init_attr in{};
  if (did(name + "query", [&] { return ibv_query_qp(qp, &a, ~0 & 0x1fffff, &in); }) != 0) return;
  const auto field = [&](const char* what, long long value) { number(name + what, value); };
  field("state", a.qp_state), field("cur_state", a.cur_qp_state), field("path_mtu", a.path_mtu);
  field("path_mig_state", a.path_mig_state), field("qkey", a.qkey);
  field("rq_psn", a.rq_psn), field("sq_psn", a.sq_psn);
  const bool known = a.dest_qp_num == peer->qp_num;
  line(name + "dest_qp_num", known ? "the peer" : a.dest_qp_num == 0 ? "0" : "another");
  field("access", a.qp_access_flags), field("sq_draining", a.sq_draining);
  field("max_rd_atomic", a.max_rd_atomic), field("max_dest_rd_atomic", a.max_dest_rd_atomic);
  field("min_rnr_timer", a.min_rnr_timer), field("port", a.port_num), field("timeout", a.timeout);
  field("retry_cnt", a.retry_cnt), field("rnr_retry", a.rnr_retry),
      field("pkey_index", a.pkey_index);
  field("alt_port", a.alt_port_num), field("alt_timeout", a.alt_timeout),
      field("rate_limit", a.rate_limit);
  field("send_wr", a.cap.max_send_wr), field("recv_wr", a.cap.max_recv_wr);
  field("send_sge", a.cap.max_send_sge), field("recv_sge", a.cap.max_recv_sge);
  field("inline", a.cap.max_inline_data);
  for (const auto* const ah : {&a.ah_attr, &a.alt_ah_attr}) {
    const auto of = name + (ah == &a.ah_attr ? "ah " : "alt ah ");
    const bool zero =
        std::all_of(ah->grh.dgid.raw, ah->grh.dgid.raw + 16, [](auto one) { return one == 0; });
    line(of + "dgid", zero ? "zero" : "there");
    number(of + "sgid_index", ah->grh.sgid_index), number(of + "flow_label", ah->grh.flow_label);
    number(of + "hop_limit", ah->grh.hop_limit),
        number(of + "traffic_class", ah->grh.traffic_class);
    number(of + "sl", ah->sl), number(of + "static_rate", ah->static_rate);
    number(of + "global", ah->is_global), number(of + "port", ah->port_num);
    number(of + "path bits", ah->src_path_bits), number(of + "dlid", ah->dlid);
  }
  field("init send_wr", in.cap.max_send_wr), field("init recv_wr", in.cap.max_recv_wr);
  field("init send_sge", in.cap.max_send_sge), field("init recv_sge", in.cap.max_recv_sge);
  field("init inline", in.cap.max_inline_data), field("init type", in.qp_type);
  field("init all signaled", in.sq_sig_all);
}

void query_states(Kind kind) {
  World world;
  auto* const qp = create(world, kind);
  need(qp != nullptr, "QP");
  auto from = IBV_QPS_RESET;
  query(qp, qp, "RESET, ");
  for (const auto to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR, IBV_QPS_RESET}) {
    if (kind == Kind::kDct && to > IBV_QPS_RTR) break;
    auto all = attributes(world, qp, to);
    all.max_rd_atomic = 5;
    all.max_dest_rd_atomic = 3;
    all.ah_attr.grh.traffic_class = 104;
    all.ah_attr.grh.flow_label = 0x12345;
    all.ah_attr.sl = 3;
    all.ah_attr.static_rate = 0;
    did(text("to %s", state_name(to)),
        [&] { return ibv_modify_qp(qp, &all, required(kind, from, to)); });
    query(qp, qp, text("%s, ", state_name(to)));
    from = to;
  }
}

void query_traffic(Kind kind) {
  World world;
  Pair pair(world, kind);
  query(pair.one, pair.other, "before, one, ");
  for (const auto& [name, opcode, length] : kTraffic) {
    if (kind == Kind::kUc && opcode != IBV_WR_SEND && opcode != IBV_WR_RDMA_WRITE) continue;
    send(world, pair, opcode, length, 3);
    for (auto* const qp : {pair.one, pair.other}) {
      ibv_qp_attr a{};
      ibv_qp_init_attr in{};
      ibv_query_qp(qp, &a, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &in);
      line(text("after %s, %s", name, qp == pair.one ? "one" : "other"),
           text("sends 0x%x, receives 0x%x", a.sq_psn, a.rq_psn));
    }
  }
  query(pair.one, pair.other, "after, one, ");
  query(pair.other, pair.one, "after, other, ");
  ibv_qp_attr drained{};
  drained.qp_state = IBV_QPS_SQD;
  did("to SQD", [&] { return ibv_modify_qp(pair.one, &drained, IBV_QP_STATE); });
  query(pair.one, pair.other, "SQD, ");
}

}  // namespace

ORACLE_CASE(counters, traffic) {
  World world;
  Pair pair(world);
  for (const auto& [name, opcode, length] : kTraffic) {
    const auto before = read_counters(0);
    send(world, pair, opcode, length, 10);
    moved(name, before, read_counters(0));
  }
}
ORACLE_CASE(counters, failures) {
  World world;
  const auto trial = [&](const char* name, ibv_wr_opcode opcode, std::uint32_t rkey,
                         std::uint32_t lkey, std::uint32_t length) {
    Pair pair(world);
    const auto before = read_counters(0);
    post_receive(pair.other, world.bytes, 64, world.mr->lkey);
    Work work;
    work.opcode = opcode;
    work.from = world.bytes;
    work.length = length;
    work.lkey = lkey;
    work.to = world.bytes + 4096;
    work.rkey = rkey;
    need(post(pair.one, work) == 0, "post");
    completion(world.cq);
    completion(world.cq, 1);
    moved(name, before, read_counters(0));
  };
  const auto good = world.mr->rkey;
  trial("unknown rkey, WRITE", IBV_WR_RDMA_WRITE, 0x12345600, good, 8);
  trial("unknown rkey, READ", IBV_WR_RDMA_READ, 0x12345600, good, 8);
  trial("unknown rkey, FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, 0x12345600, good, 8);
  trial("unknown lkey, SEND", IBV_WR_SEND, good, 0x12345600, 8);
  trial("too long, SEND", IBV_WR_SEND, good, good, 100);
}
ORACLE_CASE(counters, idle) {
  World world;
  const auto before = read_counters(0);
  moved("nothing", before, read_counters(0));
}
ORACLE_CASE(query, states_rc) { query_states(Kind::kRc); }
ORACLE_CASE(query, states_uc) { query_states(Kind::kUc); }
ORACLE_CASE(query, states_ud) { query_states(Kind::kUd); }
ORACLE_CASE(query, states_xrc_send) { query_states(Kind::kXrcSend); }
ORACLE_CASE(query, states_xrc_recv) { query_states(Kind::kXrcReceive); }
ORACLE_CASE(query, states_raw) { query_states(Kind::kRaw); }
ORACLE_CASE(query, states_dci) { query_states(Kind::kDci); }
ORACLE_CASE(query, states_dct) { query_states(Kind::kDct); }
ORACLE_CASE(query, traffic_rc) { query_traffic(Kind::kRc); }
ORACLE_CASE(query, traffic_uc) { query_traffic(Kind::kUc); }
ORACLE_CASE(query, with_srq) {
  World world;
  ibv_qp_init_attr in{};
  in.send_cq = in.recv_cq = world.cq;
  in.srq = world.srq();
  in.cap = {10, 10, 3, 3, 100};
  in.qp_type = IBV_QPT_RC;
  in.sq_sig_all = 1;
  auto* const qp = made("create", [&] { return ibv_create_qp(world.pd, &in); });
  query(qp, qp, "");
  in.srq = nullptr;
  auto* const plain = made("create", [&] { return ibv_create_qp(world.pd, &in); });
  query(plain, plain, "plain, ");
}

}  // namespace oracle
