// Chapter flows: work queues, RSS, flow rules, matchers and their counters.
#include <net/ethernet.h>

#include <array>
#include <cstddef>
#include <functional>

#include "world.h"

namespace oracle {
namespace {

// Work queues and RSS.

ibv_wq* work_queue(World& world, std::uint32_t wrs, std::uint32_t sges, std::uint32_t flags,
                   const std::string& name, ibv_wq_type type = IBV_WQT_RQ) {
  ibv_wq_init_attr in{};
  in.wq_type = type;
  in.max_wr = wrs;
  in.max_sge = sges;
  in.pd = world.pd;
  in.cq = world.cq;
  in.comp_mask = flags != 0 ? IBV_WQ_INIT_ATTR_FLAGS : 0;
  in.create_flags = flags;
  auto* const wq = made(name, [&] { return ibv_create_wq(world.context, &in); });
  if (wq != nullptr) line(name + ", holds", text("%u x %u", in.max_wr, in.max_sge));
  return wq;
}

void work_queues(World& world) {
  for (const unsigned wrs : {0u, 1u, 16u, 100u, 32768u, 32769u, 0xffffffffu}) {
    auto* const wq = work_queue(world, wrs, 1, 0, text("%u WRs", wrs));
    if (wq != nullptr) ibv_destroy_wq(wq);
  }
  for (const unsigned sges : {0u, 2u, 3u, 30u, 31u, 32u, 33u, 64u}) {
    auto* const wq = work_queue(world, 16, sges, 0, text("%u SGEs", sges));
    if (wq != nullptr) ibv_destroy_wq(wq);
  }
  for (int bit = 0; bit != 8; ++bit) {
    auto* const wq = work_queue(world, 16, 1, 1u << bit, text("flag %d", bit));
    if (wq != nullptr) ibv_destroy_wq(wq);
  }
  work_queue(world, 16, 1, 0, "type 1", static_cast<ibv_wq_type>(1));
  auto* const wq = work_queue(world, 16, 1, 0, "WQ");
  for (int from = 0; from != 4; ++from) {
    for (int to = 0; to != 5; ++to) {
      ibv_wq_attr attr{};
      attr.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;
      attr.wq_state = static_cast<ibv_wq_state>(to);
      attr.curr_wq_state = static_cast<ibv_wq_state>(from);
      did(text("claimed %d to %d", from, to), [&] { return ibv_modify_wq(wq, &attr); });
      attr = {};
      attr.attr_mask = IBV_WQ_ATTR_STATE;
      attr.wq_state = IBV_WQS_RESET;
      ibv_modify_wq(wq, &attr);
    }
  }
  for (int bit = 0; bit != 6; ++bit) {
    ibv_wq_attr attr{};
    attr.attr_mask = 1u << bit;
    attr.flags = attr.flags_mask = 1;
    did(text("mask %d", bit), [&] { return ibv_modify_wq(wq, &attr); });
  }
}

ibv_rwq_ind_table* table_of(World& world, int log_size, ibv_wq** queues, const std::string& name) {
  ibv_rwq_ind_table_init_attr in{};
  in.log_ind_tbl_size = static_cast<std::uint32_t>(log_size);
  in.ind_tbl = queues;
  return made(name, [&] { return ibv_create_rwq_ind_table(world.context, &in); });
}

void rss(World& world) {
  auto* const wq = work_queue(world, 16, 1, 0, "WQ");
  need(wq != nullptr, "WQ");
  std::vector<ibv_wq*> queues(2048, wq);
  for (const int log_size : {0, 1, 2, 7, 8, 9, 10, 11}) {
    auto* const table = table_of(world, log_size, queues.data(), text("table of 2^%d", log_size));
    if (table != nullptr)
      did(text("table of 2^%d, destroy", log_size),
          [&] { return ibv_destroy_rwq_ind_table(table); });
  }
  auto* const table = table_of(world, 0, queues.data(), "table");
  need(table != nullptr, "table");
  did("WQ in use", [&] { return ibv_destroy_wq(wq); });
  std::array<std::uint8_t, 64> key{};
  const auto trial = [&](const std::string& name, std::uint64_t fields, std::uint8_t function,
                         std::uint8_t length) {
    ibv_qp_init_attr_ex in{};
    in.qp_type = IBV_QPT_RAW_PACKET;
    in.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    in.pd = world.pd;
    in.rwq_ind_tbl = table;
    in.rx_hash_conf = {function, length, key.data(), fields};
    auto* const qp = made(name, [&] { return ibv_create_qp_ex(world.context, &in); });
    if (qp != nullptr) ibv_destroy_qp(qp);
  };
  for (int bit = -1; bit != 33; ++bit)
    trial(text("hash field %d", bit), bit < 0 ? 0 : 1ull << bit, IBV_RX_HASH_FUNC_TOEPLITZ, 40);
  for (const unsigned fields : {3u, 12u, 15u, 0x33u, 0xc3u, 0xffu, 0x103u, 0x110u, 0x180u})
    trial(text("hash fields 0x%x", fields), fields, IBV_RX_HASH_FUNC_TOEPLITZ, 40);
  for (const int function : {0, 1, 2, 3}) trial(text("function %d", function), 3, function, 40);
  for (const int length : {0, 39, 40, 41, 64}) trial(text("key of %d", length), 3, 1, length);
  const auto with = [&](const std::string& name,
                        const std::function<void(ibv_qp_init_attr_ex&)>& change) {
    ibv_qp_init_attr_ex in{};
    in.qp_type = IBV_QPT_RAW_PACKET;
    in.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    in.pd = world.pd;
    in.rwq_ind_tbl = table;
    in.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, 40, key.data(), 3};
    change(in);
    auto* const qp = made(name, [&] { return ibv_create_qp_ex(world.context, &in); });
    if (qp != nullptr) ibv_destroy_qp(qp);
  };
  for (int bit = 0; bit != 12; ++bit)
    with(text("create flag %d", bit), [=](auto& in) {
      in.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
      in.create_flags = 1u << bit;
    });
  with("all signaled", [](auto& in) { in.sq_sig_all = 1; });
  with("with a send queue", [&](auto& in) {
    in.cap.max_send_wr = 16;
    in.send_cq = world.cq;
  });
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD})
    with(text("type %d", type), [=](auto& in) { in.qp_type = type; });
}

// Flows.

struct Rule {
  ibv_flow_attr attr{};
  ibv_flow_spec_eth eth{};
  ibv_flow_spec_ipv4 ipv4{};
  ibv_flow_spec_tcp_udp udp{};
  // libmlx5 steps from spec to spec by their sizes, even if these are wrong.
  std::array<char, 256> behind{};

  static constexpr std::size_t kSize = sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth) +
                                       sizeof(ibv_flow_spec_ipv4) + sizeof(ibv_flow_spec_tcp_udp);
};
static_assert(offsetof(Rule, behind) == Rule::kSize);

Rule plain_rule() {
  Rule rule;
  rule.attr.type = IBV_FLOW_ATTR_NORMAL;
  rule.attr.size = Rule::kSize;
  rule.attr.num_of_specs = 3;
  rule.attr.port = 1;
  rule.eth.type = IBV_FLOW_SPEC_ETH;
  rule.eth.size = sizeof rule.eth;
  rule.eth.val.ether_type = htobe16(ETHERTYPE_IP);
  rule.eth.mask.ether_type = 0xffff;
  rule.ipv4.type = IBV_FLOW_SPEC_IPV4;
  rule.ipv4.size = sizeof rule.ipv4;
  rule.udp.type = IBV_FLOW_SPEC_UDP;
  rule.udp.size = sizeof rule.udp;
  return rule;
}

void try_flow(ibv_qp* qp, Rule& rule, const std::string& name) {
  auto* const flow = made(name, [&] { return ibv_create_flow(qp, &rule.attr); });
  if (flow != nullptr) did(name + ", destroy", [&] { return ibv_destroy_flow(flow); });
}

void flows(World& world) {
  auto* const qp = create(world, Kind::kRaw);
  need(qp != nullptr, "QP");
  const auto with = [&](const std::string& name, const std::function<void(Rule&)>& change) {
    auto rule = plain_rule();
    change(rule);
    try_flow(qp, rule, name);
  };
  with("plain", [](Rule&) {});
  for (int type = 0; type != 6; ++type)
    with(text("type %d", type),
         [=](Rule& rule) { rule.attr.type = static_cast<ibv_flow_attr_type>(type); });
  for (int type = 1; type != 4; ++type)
    with(text("type %d without specs", type), [=](Rule& rule) {
      rule.attr.type = static_cast<ibv_flow_attr_type>(type);
      rule.attr.num_of_specs = 0;
      rule.attr.size = sizeof rule.attr;
    });
  for (const int priority : {0, 1, 2, 7, 8, 14, 15, 16, 100, 65535})
    with(text("priority %d", priority),
         [=](Rule& rule) { rule.attr.priority = static_cast<std::uint16_t>(priority); });
  for (const int port : {0, 1, 2, 255})
    with(text("port %d", port),
         [=](Rule& rule) { rule.attr.port = static_cast<std::uint8_t>(port); });
  for (int bit = 0; bit != 8; ++bit)
    with(text("flag %d", bit), [=](Rule& rule) { rule.attr.flags = 1u << bit; });
  for (const int specs : {0, 1, 2, 3, 4, 255})
    with(text("%d specs", specs),
         [=](Rule& rule) { rule.attr.num_of_specs = static_cast<std::uint8_t>(specs); });
  for (const int type :
       {0x20, 0x21, 0x30, 0x31, 0x34, 0x40, 0x41, 0x50, 0x51, 0x60, 0x61, 0x120, 0x1000, 0x1001})
    with(text("spec type 0x%x", type),
         [=](Rule& rule) { rule.eth.type = static_cast<ibv_flow_spec_type>(type); });
  for (const auto kind : {Kind::kRc, Kind::kUd, Kind::kUc}) {
    auto rule = plain_rule();
    try_flow(create(world, kind), rule, text("of a QP of %s", kind_name(kind)));
  }
  auto rule = plain_rule();
  made("left", [&] { return ibv_create_flow(qp, &rule.attr); });
  made("twice", [&] { return ibv_create_flow(qp, &rule.attr); });
  did("QP with flows", [&] { return ibv_destroy_qp(qp); });
}

void matchers(World& world) {
  struct {
    std::size_t size;
    std::uint8_t bytes[1024];
  } mask{64, {}};
  for (const int type : {0, 1, 2, 3, 4, 5, 9}) {
    for (const int flags : {0, 1, 2, 4}) {
      for (const int priority : {0, 1, 15, 65535}) {
        mlx5dv_flow_matcher_attr in{};
        in.type = IBV_FLOW_ATTR_NORMAL;
        in.flags = static_cast<std::uint32_t>(flags);
        in.priority = static_cast<std::uint16_t>(priority);
        in.match_mask = reinterpret_cast<mlx5dv_flow_match_parameters*>(&mask);
        in.comp_mask = type == 9 ? 0 : MLX5DV_FLOW_MATCHER_MASK_FT_TYPE;
        in.ft_type = static_cast<mlx5dv_flow_table_type>(type);
        auto* const matcher =
            made(text("table type %d, flags %d, priority %d", type, flags, priority),
                 [&] { return mlx5dv_create_flow_matcher(world.context, &in); });
        if (matcher != nullptr) mlx5dv_destroy_flow_matcher(matcher);
      }
    }
  }
  for (const unsigned size : {0u, 32u, 63u, 64u, 128u, 512u, 513u}) {
    mask.size = size;
    mlx5dv_flow_matcher_attr in{};
    in.match_mask = reinterpret_cast<mlx5dv_flow_match_parameters*>(&mask);
    made(text("mask of %u", size), [&] { return mlx5dv_create_flow_matcher(world.context, &in); });
  }
}

void counters(World& world) {
  for (const unsigned mask : {0u, 1u, 0x80000000u}) {
    ibv_counters_init_attr in{mask};
    auto* const all = made(text("counters, comp_mask %u", mask),
                           [&] { return ibv_create_counters(world.context, &in); });
    if (all == nullptr) continue;
    auto* const qp = create(world, Kind::kRaw);
    auto rule = plain_rule();
    auto* const flow = ibv_create_flow(qp, &rule.attr);
    for (int kind = 0; kind != 4; ++kind) {
      for (const unsigned index : {0u, 1u, 2u, 100u}) {
        ibv_counter_attach_attr attach{static_cast<ibv_counter_description>(kind), index, 0};
        did(text("attach %d at %u", kind, index),
            [&] { return ibv_attach_counters_point_flow(all, &attach, flow); });
      }
    }
    std::uint64_t values[8]{};
    for (const unsigned count : {0u, 1u, 2u, 8u})
      did(text("read %u", count), [&] { return ibv_read_counters(all, values, count, 0); });
    for (const unsigned flags : {1u, 2u, 3u, 0x80000000u})
      did(text("read, flags %u", flags), [&] { return ibv_read_counters(all, values, 8, flags); });
    did("destroy", [&] { return ibv_destroy_counters(all); });
  }
}

}  // namespace

ORACLE_CASE(flows, work_queues) {
  World world;
  work_queues(world);
}
ORACLE_CASE(flows, rss) {
  World world;
  rss(world);
}
ORACLE_CASE(flows, rules) {
  World world;
  flows(world);
}
ORACLE_CASE(flows, matchers) {
  World world;
  matchers(world);
}
ORACLE_CASE(flows, counters) {
  World world;
  counters(world);
}

}  // namespace oracle
