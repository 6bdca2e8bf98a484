// Chapter values: the attribute values that a transition accepts, below, at and above its bounds.
#include <arpa/inet.h>

#include <cstring>
#include <functional>

#include "world.h"

namespace oracle {
namespace {

using Change = std::function<void(ibv_qp_attr&)>;

struct Trial {
  std::string name;
  Change change;
};

/// A QP of the kind, reset for each trial.
class Values {
 public:
  Values(World& world, Kind kind) : world_(world), kind_(kind), qp_(create(world, kind)) {
    need(qp_ != nullptr, "QP");
  }

  void with(ibv_qp_state from, ibv_qp_state to, const Trial& trial, int more = 0) {
    auto reset = attributes(world_, qp_, IBV_QPS_RESET);
    ibv_modify_qp(qp_, &reset, IBV_QP_STATE);
    errno = bring(world_, qp_, kind_, from);
    need(errno == 0, state_name(from));
    auto all = attributes(world_, qp_, to);
    trial.change(all);
    const auto name = text("%s>%s %s", state_name(from), state_name(to), trial.name.c_str());
    did(name, [&] { return ibv_modify_qp(qp_, &all, required(kind_, from, to) | more); });
  }

 private:
  World& world_;
  Kind kind_;
  ibv_qp* qp_;
};

template <class T>
Trial setting(const char* name, T ibv_qp_attr::* member, long long value) {
  return {text("%s %lld", name, value),
          [=](ibv_qp_attr& all) { all.*member = static_cast<T>(value); }};
}

Trial ah(const char* name, long long value, void (*set)(ibv_ah_attr&, long long)) {
  return {text("%s %lld", name, value), [=](ibv_qp_attr& all) { set(all.ah_attr, value); }};
}

void init_values(World& world, Kind kind) {
  Values values(world, kind);
  const auto from = IBV_QPS_RESET, to = IBV_QPS_INIT;
  for (const int port : {0, 1, 2, 3, 255})
    values.with(from, to, setting("port", &ibv_qp_attr::port_num, port));
  if (kind == Kind::kRaw) return;
  for (const int index : {0, 1, 2, 127, 128, 255, 65535})
    values.with(from, to, setting("pkey_index", &ibv_qp_attr::pkey_index, index));
  if (kind == Kind::kUd) {
    for (const long long key : {0LL, 1LL, 0x7fffffffLL, 0x80000000LL, 0x80010000LL, 0xffffffffLL})
      values.with(from, to, setting("qkey", &ibv_qp_attr::qkey, key));
    return;
  }
  for (int bit = 0; bit != 32; ++bit)
    values.with(from, to, {text("access bit %d", bit), [=](ibv_qp_attr& all) {
                             all.qp_access_flags = 1u << bit;
                           }});
}

void path_values(Values& values) {
  const auto from = IBV_QPS_INIT, to = IBV_QPS_RTR;
  const auto with = [&](const Trial& trial) { values.with(from, to, trial); };
  for (const int port : {0, 1, 2, 255})
    with(ah("ah port", port, [](ibv_ah_attr& ah, long long v) { ah.port_num = v; }));
  for (const int rate : {0, 1, 2, 3, 5, 10, 18, 19, 20, 30, 100, 200, 255})
    with(ah("static_rate", rate, [](ibv_ah_attr& ah, long long v) { ah.static_rate = v; }));
  for (const int sl : {0, 7, 8, 15, 16, 255})
    with(ah("sl", sl, [](ibv_ah_attr& ah, long long v) { ah.sl = v; }));
  for (const int global : {0, 1, 2})
    with(ah("is_global", global, [](ibv_ah_attr& ah, long long v) { ah.is_global = v; }));
  for (const int index : {0, 1, 2, 3, 4, 5, 100, 254, 255})
    with(ah("sgid_index", index, [](ibv_ah_attr& ah, long long v) { ah.grh.sgid_index = v; }));
  for (const int limit : {0, 1, 64, 255})
    with(ah("hop_limit", limit, [](ibv_ah_attr& ah, long long v) { ah.grh.hop_limit = v; }));
  for (const int tclass : {0, 1, 106, 255})
    with(ah("traffic_class", tclass,
            [](ibv_ah_attr& ah, long long v) { ah.grh.traffic_class = v; }));
  for (const long long label : {0LL, 1LL, 0xfffffLL, 0x100000LL, 0xffffffffLL})
    with(ah("flow_label", label, [](ibv_ah_attr& ah, long long v) { ah.grh.flow_label = v; }));
  for (const int lid : {0, 1, 0xbfff, 0xffff})
    with(ah("dlid", lid, [](ibv_ah_attr& ah, long long v) { ah.dlid = v; }));
  for (const int bits : {0, 1, 127})
    with(ah("src_path_bits", bits, [](ibv_ah_attr& ah, long long v) { ah.src_path_bits = v; }));
}

void rtr_values(World& world, Kind kind) {
  Values values(world, kind);
  const auto from = IBV_QPS_INIT, to = IBV_QPS_RTR;
  const auto with = [&](const Trial& trial) { values.with(from, to, trial); };
  path_values(values);
  for (const int mtu : {0, 1, 2, 3, 4, 5, 6, 7, 255, 256})
    with({text("path_mtu %d", mtu),
          [=](ibv_qp_attr& all) { all.path_mtu = static_cast<ibv_mtu>(mtu); }});
  for (const long long number : {0LL, 1LL, 0xffffffLL, 0x1000000LL, 0xffffffffLL}) {
    with(setting("dest_qp_num", &ibv_qp_attr::dest_qp_num, number));
    with(setting("rq_psn", &ibv_qp_attr::rq_psn, number));
  }
  for (const int count : {0, 1, 2, 3, 5, 15, 16, 17, 32, 128, 255})
    with(setting("max_dest_rd_atomic", &ibv_qp_attr::max_dest_rd_atomic, count));
  for (const int timer : {0, 1, 30, 31, 32, 255})
    with(setting("min_rnr_timer", &ibv_qp_attr::min_rnr_timer, timer));
}

void rts_values(World& world, Kind kind) {
  Values values(world, kind);
  const auto from = IBV_QPS_RTR, to = IBV_QPS_RTS;
  const auto with = [&](const Trial& trial) { values.with(from, to, trial); };
  for (const long long number : {0LL, 1LL, 0xffffffLL, 0x1000000LL, 0xffffffffLL})
    with(setting("sq_psn", &ibv_qp_attr::sq_psn, number));
  for (const int value : {0, 1, 14, 31, 32, 33, 255})
    with(setting("timeout", &ibv_qp_attr::timeout, value));
  for (const int value : {0, 1, 7, 8, 15, 16, 255}) {
    with(setting("retry_cnt", &ibv_qp_attr::retry_cnt, value));
    with(setting("rnr_retry", &ibv_qp_attr::rnr_retry, value));
  }
  for (const int value : {0, 1, 2, 3, 5, 15, 16, 17, 32, 128, 255})
    with(setting("max_rd_atomic", &ibv_qp_attr::max_rd_atomic, value));
}

/// Optional attributes, at a transition that accepts them.
void optional_values(World& world) {
  Values values(world, Kind::kRc);
  const auto rtr = IBV_QPS_RTR, rts = IBV_QPS_RTS;
  for (const int value : {0, 1, 30, 31, 32, 255}) {
    const auto trial = setting("min_rnr_timer", &ibv_qp_attr::min_rnr_timer, value);
    values.with(rtr, rts, trial, IBV_QP_MIN_RNR_TIMER);
    values.with(rts, rts, trial, IBV_QP_MIN_RNR_TIMER);
  }
  for (int bit = 0; bit != 32; ++bit) {
    const Trial trial{text("access bit %d", bit),
                      [=](ibv_qp_attr& all) { all.qp_access_flags = 1u << bit; }};
    values.with(rtr, rts, trial, IBV_QP_ACCESS_FLAGS);
    values.with(rts, rts, trial, IBV_QP_ACCESS_FLAGS);
  }
  for (const int value : {0, 1, 2, 3, 255}) {
    const Trial trial{text("path_mig_state %d", value), [=](ibv_qp_attr& all) {
                        all.path_mig_state = static_cast<ibv_mig_state>(value);
                      }};
    values.with(rtr, rts, trial, IBV_QP_PATH_MIG_STATE);
    values.with(rts, rts, trial, IBV_QP_PATH_MIG_STATE);
  }
  for (const int value : {0, 1, 2, 255})
    values.with(rts, IBV_QPS_SQD, setting("en_sqd", &ibv_qp_attr::en_sqd_async_notify, value),
                IBV_QP_EN_SQD_ASYNC_NOTIFY);
  for (const int value : {0, 1, 2, 255}) {
    const Trial trial{text("alt port %d", value), [=](ibv_qp_attr& all) {
                        all.alt_port_num = all.alt_ah_attr.port_num = value;
                      }};
    values.with(IBV_QPS_INIT, rtr, trial, IBV_QP_ALT_PATH);
    values.with(rtr, rts, trial, IBV_QP_ALT_PATH);
  }
}

/// Destination GIDs of every kind, with source GIDs of both families.
void destinations(World& world) {
  Values values(world, Kind::kRc);
  struct Named {
    const char* name;
    const char* address;
  };
  constexpr Named all[] = {{"zero", "::"},
                           {"loopback", "::1"},
                           {"IPv4 zero", "::ffff:0.0.0.0"},
                           {"IPv4 broadcast", "::ffff:255.255.255.255"},
                           {"IPv4 multicast", "::ffff:239.1.1.1"},
                           {"IPv4 loopback", "::ffff:127.0.0.1"},
                           {"own IPv4", "::ffff:198.19.1.1"},
                           {"own second IPv4", "::ffff:198.19.2.1"},
                           {"multicast", "ff0e::1"}};
  for (const auto& [name, address] : all) {
    for (const int index : {1, 3}) {
      ibv_gid gid;
      inet_pton(AF_INET6, address, gid.raw);
      const Trial trial{text("to %s from index %d", name, index), [=](ibv_qp_attr& attr) {
                          attr.ah_attr.grh.dgid = gid;
                          attr.ah_attr.grh.sgid_index = index;
                        }};
      values.with(IBV_QPS_INIT, IBV_QPS_RTR, trial);
    }
  }
  for (int from = 0; from != 4; ++from) {
    for (int to = 0; to != 4; ++to) {
      ibv_gid gid;
      need(ibv_query_gid(world.context, 1, to, &gid) == 0, "GID");
      values.with(IBV_QPS_INIT, IBV_QPS_RTR,
                  {text("own GID %d from index %d", to, from), [=](ibv_qp_attr& attr) {
                     attr.ah_attr.grh.dgid = gid;
                     attr.ah_attr.grh.sgid_index = from;
                   }});
    }
  }
}

template <void (*F)(World&, Kind)>
void of(Kind kind) {
  World world;
  F(world, kind);
}

}  // namespace

ORACLE_CASE(values, init_rc) { of<init_values>(Kind::kRc); }
ORACLE_CASE(values, init_uc) { of<init_values>(Kind::kUc); }
ORACLE_CASE(values, init_ud) { of<init_values>(Kind::kUd); }
ORACLE_CASE(values, init_xrc_send) { of<init_values>(Kind::kXrcSend); }
ORACLE_CASE(values, init_xrc_recv) { of<init_values>(Kind::kXrcReceive); }
ORACLE_CASE(values, init_raw) { of<init_values>(Kind::kRaw); }
ORACLE_CASE(values, rtr_rc) { of<rtr_values>(Kind::kRc); }
ORACLE_CASE(values, rtr_uc) { of<rtr_values>(Kind::kUc); }
ORACLE_CASE(values, rtr_xrc_recv) { of<rtr_values>(Kind::kXrcReceive); }
ORACLE_CASE(values, rts_rc) { of<rts_values>(Kind::kRc); }
ORACLE_CASE(values, rts_uc) { of<rts_values>(Kind::kUc); }
ORACLE_CASE(values, rts_ud) { of<rts_values>(Kind::kUd); }
ORACLE_CASE(values, optional) {
  World world;
  optional_values(world);
}
ORACLE_CASE(values, destinations) {
  World world;
  destinations(world);
}

}  // namespace oracle
