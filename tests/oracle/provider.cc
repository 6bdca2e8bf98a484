// Chapter provider: DevX commands and objects, and mlx5dv_create_mkey.
#include <array>

#include "world.h"

namespace oracle {
namespace {

// DevX and the rest of mlx5dv.

void devx(World& world) {
  std::array<std::uint8_t, 4096> in{}, out{};
  const auto general = [&](unsigned opcode, unsigned op_mod, std::size_t in_size,
                           std::size_t out_size) {
    in[0] = static_cast<std::uint8_t>(opcode >> 8);
    in[1] = static_cast<std::uint8_t>(opcode);
    in[6] = static_cast<std::uint8_t>(op_mod >> 8);
    in[7] = static_cast<std::uint8_t>(op_mod);
    out = {};
    errno = 0;
    const int got =
        mlx5dv_devx_general_cmd(world.context, in.data(), in_size, out.data(), out_size);
    line(text("command 0x%x, op_mod %u, %zu, %zu", opcode, op_mod, in_size, out_size),
         outcome(got, errno) + text(", status 0x%x", out[0]));
  };
  for (const unsigned opcode :
       {0x0u,   0x100u, 0x101u, 0x102u, 0x107u, 0x200u, 0x203u, 0x301u, 0x400u,
        0x50bu, 0x502u, 0x700u, 0x750u, 0x751u, 0x754u, 0x755u, 0x770u, 0x773u,
        0x800u, 0x802u, 0x805u, 0x825u, 0x90au, 0xa00u, 0xb00u, 0xffffu})
    general(opcode, 0, 16, 4096);
  for (unsigned op_mod = 0; op_mod != 64; ++op_mod) general(0x100, op_mod, 16, 16 + 4080);
  for (const std::size_t size : {0ul, 1ul, 8ul, 15ul, 16ul, 17ul, 4096ul}) {
    general(0x100, 1, size, 4096);
    general(0x100, 1, 16, size);
  }
  for (const unsigned opcode : {0x200u, 0x400u, 0x500u, 0x800u, 0x816u, 0x900u, 0x904u, 0x908u,
                                0x918u, 0x91cu, 0x930u, 0x936u, 0x939u, 0xa00u, 0xffffu}) {
    in = {};
    out = {};
    in[0] = static_cast<std::uint8_t>(opcode >> 8);
    in[1] = static_cast<std::uint8_t>(opcode);
    errno = 0;
    auto* const object = mlx5dv_devx_obj_create(world.context, in.data(), 272, out.data(), 16);
    line(text("create 0x%x", opcode),
         (object ? "ok" : "none " + error_name(errno)) + text(", status 0x%x", out[0]));
  }
}

void devx_objects(World& world) {
  for (const unsigned flags : {0u, 1u, 2u, 0x80000000u}) {
    auto* const uar = made(text("UAR, flags %u", flags),
                           [&] { return mlx5dv_devx_alloc_uar(world.context, flags); });
    if (uar != nullptr) mlx5dv_devx_free_uar(uar);
  }
  for (const unsigned access : {0u, 1u, 2u, 3u, 7u, 15u, 16u, 64u, 1u << 20, 1u << 30}) {
    auto* const umem = made(text("umem, access %u", access), [&] {
      return mlx5dv_devx_umem_reg(world.context, world.bytes, 4096, access);
    });
    if (umem != nullptr)
      did(text("umem, access %u, free", access), [&] { return mlx5dv_devx_umem_dereg(umem); });
  }
  made("umem of nothing", [&] { return mlx5dv_devx_umem_reg(world.context, nullptr, 4096, 1); });
  made("umem of 0 bytes", [&] { return mlx5dv_devx_umem_reg(world.context, world.bytes, 0, 1); });
  for (const unsigned vector : {0u, 1u, 2u, 100u}) {
    std::uint32_t eqn = 0;
    did(text("EQ of vector %u", vector),
        [&] { return mlx5dv_devx_query_eqn(world.context, vector, &eqn); });
  }
  for (const int flags : {0, 1, 2}) {
    auto* const channel = made(text("event channel %d", flags), [&] {
      return mlx5dv_devx_create_event_channel(
          world.context, static_cast<mlx5dv_devx_create_event_channel_flags>(flags));
    });
    if (channel != nullptr) mlx5dv_devx_destroy_event_channel(channel);
  }
  for (const unsigned type : {0u, 1u, 2u}) {
    mlx5dv_pp* const pp = made(text("packet pacing %u", type), [&] {
      std::array<std::uint8_t, 16> context{};
      return mlx5dv_pp_alloc(world.context, context.size(), context.data(), type);
    });
    if (pp != nullptr) mlx5dv_pp_free(pp);
  }
  for (const unsigned type : {0u, 1u, 2u}) {
    auto* const var =
        made(text("VAR %u", type), [&] { return mlx5dv_alloc_var(world.context, type); });
    if (var != nullptr) mlx5dv_free_var(var);
  }
}

void mkeys(World& world) {
  for (const unsigned entries : {0u, 1u, 4u, 5u, 100u, 1000u, 65535u}) {
    for (const unsigned flags : {0u, 1u, 2u, 3u, 4u, 8u}) {
      mlx5dv_mkey_init_attr in{};
      in.pd = world.pd;
      in.create_flags = flags;
      in.max_entries = static_cast<std::uint16_t>(entries);
      auto* const key = made(text("mkey of %u, flags %u", entries, flags),
                             [&] { return mlx5dv_create_mkey(&in); });
      if (key == nullptr) continue;
      const auto name = text("mkey of %u, flags %u, ", entries, flags);
      number(name + "holds", in.max_entries);
      did(name + "destroy", [&] { return mlx5dv_destroy_mkey(key); });
    }
  }
}

}  // namespace

ORACLE_CASE(provider, devx) {
  World world;
  devx(world);
}
ORACLE_CASE(provider, objects) {
  World world;
  devx_objects(world);
}
ORACLE_CASE(provider, mkeys) {
  World world;
  mkeys(world);
}

}  // namespace oracle
