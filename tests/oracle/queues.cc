// Chapter queues: creating QPs, CQs and SRQs at, above and below every limit, and with every flag.
#include <cstring>
#include <functional>

#include "world.h"

namespace oracle {
namespace {

std::string describe(const ibv_qp_cap& cap) {
  return text("send %u x %u, receive %u x %u, inline %u", cap.max_send_wr, cap.max_send_sge,
              cap.max_recv_wr, cap.max_recv_sge, cap.max_inline_data);
}

/// Creates and destroys a QP. The line has the returned caps.
void try_qp(World& world, ibv_qp_init_attr in, const std::string& name) {
  errno = 0;
  auto* const qp = ibv_create_qp(world.pd, &in);
  line(name, qp == nullptr ? "none " + error_name(errno) : describe(in.cap));
  if (qp != nullptr) ibv_destroy_qp(qp);
}

ibv_qp_init_attr usual(World& world, ibv_qp_type type) {
  ibv_qp_init_attr in{};
  in.send_cq = in.recv_cq = world.cq;
  in.cap = {16, 16, 1, 1, 0};
  in.qp_type = type;
  return in;
}

struct Transport {
  const char* name;
  ibv_qp_type type;
};
constexpr Transport kTransports[] = {{"RC", IBV_QPT_RC},
                                     {"UC", IBV_QPT_UC},
                                     {"UD", IBV_QPT_UD},
                                     {"raw", IBV_QPT_RAW_PACKET},
                                     {"XRC_SEND", IBV_QPT_XRC_SEND}};

void caps(World& world, const Transport& of) {
  const auto trial = [&](const char* what, std::uint32_t ibv_qp_cap::* member,
                         std::uint32_t value) {
    auto in = usual(world, of.type);
    if (of.type == IBV_QPT_XRC_SEND) in.cap.max_recv_wr = in.cap.max_recv_sge = 0;
    in.cap.*member = value;
    try_qp(world, in, text("%s, %s %u", of.name, what, value));
  };
  for (const unsigned value : {0u, 1u, 2u, 3u, 17u, 1000u, 4096u, 8192u, 8193u, 32768u, 32769u,
                               65536u, 0x80000000u, 0xffffffffu}) {
    trial("max_send_wr", &ibv_qp_cap::max_send_wr, value);
    trial("max_recv_wr", &ibv_qp_cap::max_recv_wr, value);
  }
  for (const unsigned value :
       {0u, 2u, 3u, 4u, 7u, 13u, 28u, 29u, 30u, 31u, 32u, 33u, 62u, 0xffffffffu}) {
    trial("max_send_sge", &ibv_qp_cap::max_send_sge, value);
    trial("max_recv_sge", &ibv_qp_cap::max_recv_sge, value);
  }
  for (const unsigned value :
       {1u,   12u,  44u,  60u,  64u,  100u,  128u,  500u,  828u,   900u,
        956u, 957u, 972u, 988u, 989u, 1004u, 1005u, 1024u, 65536u, 0xffffffffu})
    trial("max_inline_data", &ibv_qp_cap::max_inline_data, value);
}

void handles(World& world) {
  for (const auto& of : kTransports) {
    const auto trial = [&](const char* what, const std::function<void(ibv_qp_init_attr&)>& change) {
      auto in = usual(world, of.type);
      change(in);
      try_qp(world, in, text("%s, %s", of.name, what));
    };
    trial("SRQ", [&](auto& in) { in.srq = world.srq(); });
    trial("all signaled", [](auto& in) { in.sq_sig_all = 1; });
    trial("sq_sig_all 2", [](auto& in) { in.sq_sig_all = 2; });
  }
  for (const int type : {0, 1, 5, 6, 7, 11, 12, 255})
    try_qp(world, usual(world, static_cast<ibv_qp_type>(type)), text("type %d", type));
  try_qp(world, usual(world, IBV_QPT_XRC_RECV), "XRC_RECV");
  try_qp(world, usual(world, IBV_QPT_DRIVER), "DRIVER");
}

ibv_qp_init_attr_ex extended(World& world, ibv_qp_type type) {
  const auto plain = usual(world, type);
  ibv_qp_init_attr_ex in{};
  in.send_cq = in.recv_cq = world.cq;
  in.cap = plain.cap;
  in.qp_type = type;
  in.comp_mask = IBV_QP_INIT_ATTR_PD;
  in.pd = world.pd;
  if (type == IBV_QPT_XRC_SEND) in.cap.max_recv_wr = in.cap.max_recv_sge = 0;
  return in;
}

void try_extended(World& world, ibv_qp_init_attr_ex in, const std::string& name,
                  mlx5dv_qp_init_attr* dv = nullptr) {
  errno = 0;
  auto* const qp = dv != nullptr ? mlx5dv_create_qp(world.context, &in, dv)
                                 : ibv_create_qp_ex(world.context, &in);
  line(name, qp == nullptr ? "none " + error_name(errno) : describe(in.cap));
  if (qp != nullptr) ibv_destroy_qp(qp);
}

void flags(World& world, const Transport& of) {
  for (int bit = 0; bit != 32; ++bit) {
    auto in = extended(world, of.type);
    in.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    in.create_flags = 1u << bit;
    try_extended(world, in, text("%s, create flag %d", of.name, bit));
    if (bit == 10) {
      in.source_qpn = 0x123;
      try_extended(world, in, text("%s, source QPN", of.name));
    }
  }
  for (int bit = 0; bit != 14; ++bit) {
    auto in = extended(world, of.type);
    in.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    in.send_ops_flags = 1u << bit;
    try_extended(world, in, text("%s, send operation %d", of.name, bit));
  }
  for (int bit = 0; bit != 10; ++bit) {
    auto in = extended(world, of.type);
    in.comp_mask ^= 1u << bit;
    if (bit == 1) in.xrcd = world.xrcd();
    try_extended(world, in, text("%s, comp_mask %d", of.name, bit));
  }
  for (int bit = 0; bit != 16; ++bit) {
    auto in = extended(world, of.type);
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    dv.create_flags = 1u << bit;
    try_extended(world, in, text("%s, mlx5dv flag %d", of.name, bit), &dv);
  }
  for (int bit = 0; bit != 8; ++bit) {
    auto in = extended(world, of.type);
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = 1u << bit;
    try_extended(world, in, text("%s, mlx5dv comp_mask %d", of.name, bit), &dv);
  }
}

void receives_of_dci(World& world) {
  for (const unsigned receives : {0u, 1u, 16u}) {
    for (const unsigned entries : {0u, 1u, 4u}) {
      auto in = extended(world, IBV_QPT_RC);
      in.qp_type = IBV_QPT_DRIVER;
      in.cap.max_recv_wr = receives;
      in.cap.max_recv_sge = entries;
      mlx5dv_qp_init_attr dv{};
      dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
      dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
      try_extended(world, in, text("DCI, %u receives of %u", receives, entries), &dv);
    }
  }
}

void try_cq(ibv_context* context, int cqes, int vector, const std::string& name,
            ibv_comp_channel* channel = nullptr) {
  errno = 0;
  auto* const cq = ibv_create_cq(context, cqes, nullptr, channel, vector);
  line(name, cq == nullptr ? "none " + error_name(errno) : std::to_string(cq->cqe));
  if (cq != nullptr) did(name + ", destroyed", [&] { return ibv_destroy_cq(cq); });
}

void try_cq_ex(ibv_context* context, ibv_cq_init_attr_ex in, const std::string& name,
               mlx5dv_cq_init_attr* dv = nullptr) {
  errno = 0;
  auto* const cq =
      dv != nullptr ? mlx5dv_create_cq(context, &in, dv) : ibv_create_cq_ex(context, &in);
  line(name, cq == nullptr ? "none " + error_name(errno) : std::to_string(cq->cqe));
  if (cq != nullptr) ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}

void extended_cqs(ibv_context* context) {
  for (int bit = 0; bit != 16; ++bit) {
    ibv_cq_init_attr_ex in{};
    in.cqe = 10;
    in.wc_flags = 1ull << bit;
    try_cq_ex(context, in, text("wc flag %d", bit));
    in.wc_flags = 0;
    in.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    in.flags = 1u << bit;
    try_cq_ex(context, in, text("flag %d", bit));
    in.flags = 0;
    in.comp_mask = 1u << bit;
    try_cq_ex(context, in, text("comp_mask %d", bit));
    in.comp_mask = 0;
    mlx5dv_cq_init_attr dv{};
    dv.comp_mask = 1ull << bit;
    try_cq_ex(context, in, text("mlx5dv comp_mask %d", bit), &dv);
    dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
    dv.cqe_comp_res_format = 1u << bit;
    try_cq_ex(context, in, text("mlx5dv compression %d", bit), &dv);
    dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    dv.cqe_size = static_cast<std::uint16_t>(1u << bit);
    try_cq_ex(context, in, text("mlx5dv CQE size %u", 1u << bit), &dv);
    dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_FLAGS;
    dv.flags = 1u << bit;
    try_cq_ex(context, in, text("mlx5dv flag %d", bit), &dv);
  }
}

void try_srq(World& world, std::uint32_t wrs, std::uint32_t sges, std::uint32_t limit = 0) {
  ibv_srq_init_attr in{};
  in.attr = {wrs, sges, limit};
  const auto name = text("%u x %u, limit %u", wrs, sges, limit);
  errno = 0;
  auto* const srq = ibv_create_srq(world.pd, &in);
  const auto got = text("%u x %u, limit %u", in.attr.max_wr, in.attr.max_sge, in.attr.srq_limit);
  line(name, srq == nullptr ? "none " + error_name(errno) : got);
  if (srq == nullptr) return;
  ibv_srq_attr now{};
  did(name + ", query", [&] { return ibv_query_srq(srq, &now); });
  line(name + ", holds", text("%u x %u, limit %u", now.max_wr, now.max_sge, now.srq_limit));
  ibv_destroy_srq(srq);
}

void modify_srq(World& world) {
  ibv_srq_init_attr in{};
  in.attr = {100, 2, 0};
  auto* const srq = ibv_create_srq(world.pd, &in);
  need(srq != nullptr, "SRQ");
  for (const unsigned limit : {0u, 1u, 99u, 100u, 127u, 128u, 129u, 1000u, 0xffffffffu}) {
    ibv_srq_attr attr{0, 0, limit};
    did(text("limit %u", limit), [&] { return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT); });
    did("query", [&] { return ibv_query_srq(srq, &attr); });
    number("limit now", attr.srq_limit);
  }
  for (const unsigned wrs : {0u, 1u, 50u, 100u, 200u}) {
    ibv_srq_attr attr{wrs, 0, 0};
    did(text("max_wr %u", wrs), [&] { return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR); });
  }
  for (const int mask : {0, 3, 4, 8, 255}) {
    ibv_srq_attr attr{100, 2, 10};
    did(text("mask %d", mask), [&] { return ibv_modify_srq(srq, &attr, mask); });
  }
}

void extended_srqs(World& world) {
  for (int type = 0; type != 5; ++type) {
    for (int bit = -1; bit != 7; ++bit) {
      ibv_srq_init_attr_ex in{};
      in.attr = {16, 1, 0};
      in.srq_type = static_cast<ibv_srq_type>(type);
      in.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
      if (bit >= 0) in.comp_mask ^= 1u << bit;
      in.pd = world.pd;
      in.cq = world.cq;
      in.xrcd = world.xrcd();
      in.tm_cap = {16, 4};
      errno = 0;
      auto* const srq = ibv_create_srq_ex(world.context, &in);
      line(text("type %d, bit %d", type, bit), srq == nullptr ? "none " + error_name(errno) : "ok");
      if (srq == nullptr) continue;
      std::uint32_t of = 0;
      did("number", [&] { return ibv_get_srq_num(srq, &of); });
      did("destroy", [&] { return ibv_destroy_srq(srq); });
    }
  }
}

void resize(World& world) {
  auto* const cq = ibv_create_cq(world.context, 100, nullptr, nullptr, 0);
  need(cq != nullptr, "CQ");
  for (const int cqes : {1, 2, 100, 127, 128, 255, 1000, 0, -1, 4194305, 0x7fffffff}) {
    did(text("to %d", cqes), [&] { return ibv_resize_cq(cq, cqes); });
    number(text("after %d", cqes), cq->cqe);
  }
}

void moderation(World& world) {
  auto* const cq = ibv_create_cq(world.context, 100, nullptr, nullptr, 0);
  need(cq != nullptr, "CQ");
  for (const unsigned count : {0u, 1u, 100u, 4095u, 4096u, 65535u}) {
    for (const unsigned mask : {0u, 1u, 2u, 3u}) {
      ibv_modify_cq_attr attr{};
      attr.attr_mask = mask;
      attr.moderate.cq_count = attr.moderate.cq_period = static_cast<std::uint16_t>(count);
      did(text("count, period %u, mask %u", count, mask), [&] { return ibv_modify_cq(cq, &attr); });
    }
  }
}

template <void (*F)(World&, const Transport&)>
void of(int index) {
  World world;
  F(world, kTransports[index]);
}

}  // namespace

ORACLE_CASE(queues, caps_rc) { of<caps>(0); }
ORACLE_CASE(queues, caps_uc) { of<caps>(1); }
ORACLE_CASE(queues, caps_ud) { of<caps>(2); }
ORACLE_CASE(queues, caps_raw) { of<caps>(3); }
ORACLE_CASE(queues, caps_xrc) { of<caps>(4); }
ORACLE_CASE(queues, flags_rc) { of<flags>(0); }
ORACLE_CASE(queues, flags_uc) { of<flags>(1); }
ORACLE_CASE(queues, flags_ud) { of<flags>(2); }
ORACLE_CASE(queues, flags_raw) { of<flags>(3); }
ORACLE_CASE(queues, flags_xrc) { of<flags>(4); }
ORACLE_CASE(queues, receives_of_dci) {
  World world;
  receives_of_dci(world);
}
ORACLE_CASE(queues, handles) {
  World world;
  handles(world);
}
ORACLE_CASE(queues, cqs) {
  auto* const context = open_device();
  for (const int cqes : {-1, 0, 1, 2, 3, 4, 7, 8, 63, 64, 65, 1000, 65535, 65536, 0x7fffffff})
    try_cq(context, cqes, 0, text("%d CQEs", cqes));
  for (const int vector : {-1, 0, 1, 2, 3, 255, 65535})
    try_cq(context, 10, vector, text("vector %d", vector));
  auto* const channel = made("channel", [&] { return ibv_create_comp_channel(context); });
  try_cq(context, 10, 0, "with a channel", channel);
  did("destroy", [&] { return ibv_destroy_comp_channel(channel); });
}
ORACLE_CASE(queues, cqs_ex) { extended_cqs(open_device()); }
ORACLE_CASE(queues, srqs) {
  World world;
  for (const unsigned wrs :
       {0u, 1u, 2u, 3u, 100u, 1024u, 32767u, 32768u, 32769u, 65536u, 0xffffffffu})
    try_srq(world, wrs, 1);
  for (const unsigned sges : {0u, 2u, 3u, 4u, 14u, 15u, 16u, 29u, 30u, 31u, 32u, 33u, 0xffffffffu})
    try_srq(world, 100, sges);
  for (const unsigned limit : {1u, 100u, 1000u}) try_srq(world, 100, 1, limit);
}
ORACLE_CASE(queues, modify_srq) {
  World world;
  modify_srq(world);
}
ORACLE_CASE(queues, srqs_ex) {
  World world;
  extended_srqs(world);
}
ORACLE_CASE(queues, resize) {
  World world;
  resize(world);
}
ORACLE_CASE(queues, moderation) {
  World world;
  moderation(world);
}

}  // namespace oracle
