// Chapter windows: memory windows, invalidation, and keys that are made and destroyed.
#include <cstring>

#include "world.h"

namespace oracle {
namespace {

/// Two QPs, a region that allows binding, and a window.
struct Scene {
  explicit Scene(World& of, int access = kAllAccess | IBV_ACCESS_MW_BIND)
      : world(of), pair(of), mr(ibv_reg_mr(of.pd, of.bytes, of.size, access)) {
    need(mr != nullptr, "MR");
  }
  World& world;
  Pair pair;
  ibv_mr* mr;
};

ibv_mw_bind_info info(const Scene& scene, unsigned access, std::uint64_t offset,
                      std::uint64_t length) {
  return {scene.mr, reinterpret_cast<std::uintptr_t>(scene.world.bytes) + offset, length, access};
}

/// Binds by a work request. For windows of type 2.
int bind(Scene& scene, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& of,
         const std::string& name) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 1;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = of;
  const int posted = did(name + ", post", [&] { return ibv_post_send(scene.pair.one, &wr, &bad); });
  if (posted == 0)
    line(name, describe(completion(scene.world.cq), scene.pair.one, scene.pair.other));
  return posted;
}

/// The peer writes eight bytes by the key. Prints its completion.
void write_by(Scene& scene, std::uint32_t rkey, std::uint64_t offset, const std::string& name,
              ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
  Work work;
  work.opcode = opcode;
  work.from = scene.world.bytes + scene.world.size / 2;
  work.length = 8;
  work.lkey = scene.world.mr->lkey;
  work.to = scene.world.bytes + offset;
  work.rkey = rkey;
  if (did(name + ", post", [&] { return post(scene.pair.other, work); }) == 0)
    line(name, describe(completion(scene.world.cq), scene.pair.one, scene.pair.other));
}

ibv_mw* window(Scene& scene, ibv_mw_type type) {
  return made(text("window of type %d", type), [&] { return ibv_alloc_mw(scene.world.pd, type); });
}

void accesses(ibv_mw_type type) {
  for (int bit = -1; bit != 12; ++bit) {
    const unsigned access = bit < 0 ? 0 : 1u << bit;
    World world;
    Scene scene(world);
    auto* const mw = window(scene, type);
    if (mw == nullptr) return;
    const auto name = text("access 0x%x", access);
    auto rkey = ibv_inc_rkey(mw->rkey);
    if (type == IBV_MW_TYPE_1) {
      ibv_mw_bind of{};
      of.wr_id = 1;
      of.send_flags = IBV_SEND_SIGNALED;
      of.bind_info = info(scene, access, 0, 4096);
      if (did(name + ", post", [&] { return ibv_bind_mw(scene.pair.one, mw, &of); }) != 0) continue;
      line(name, describe(completion(world.cq), scene.pair.one));
      rkey = mw->rkey;
    } else if (bind(scene, mw, rkey, info(scene, access, 0, 4096), name) != 0) {
      continue;
    }
    write_by(scene, rkey, 8, name + ", WRITE");
    write_by(scene, rkey, 16, name + ", READ", IBV_WR_RDMA_READ);
    did(name + ", free", [&] { return ibv_dealloc_mw(mw); });
  }
}

void bounds() {
  struct Range {
    const char* name;
    std::uint64_t offset, length;
  };
  constexpr Range ranges[] = {
      {"first page", 0, 4096},  {"inside a page", 100, 50},         {"empty", 0, 0},
      {"all", 0, 1 << 20},      {"one too many", 0, (1 << 20) + 1}, {"beyond", 1 << 20, 8},
      {"before", ~0ull - 7, 16}};
  for (const auto& [name, offset, length] : ranges) {
    World world;
    Scene scene(world);
    auto* const mw = window(scene, IBV_MW_TYPE_2);
    if (mw == nullptr) return;
    const auto rkey = ibv_inc_rkey(mw->rkey);
    bind(scene, mw, rkey, info(scene, IBV_ACCESS_REMOTE_WRITE, offset, length), name);
    write_by(scene, rkey, offset + length - 8, std::string(name) + ", last bytes");
    write_by(scene, rkey, offset + length - 7, std::string(name) + ", past the end");
  }
}

/// LOCAL_INV and SEND_WITH_INV of bound windows, unbound ones, and other keys.
void invalidations() {
  World world;
  Scene scene(world);
  auto* const mw = window(scene, IBV_MW_TYPE_2);
  if (mw == nullptr) return;
  const auto rkey = ibv_inc_rkey(mw->rkey);
  bind(scene, mw, rkey, info(scene, IBV_ACCESS_REMOTE_WRITE, 0, 4096), "bind");
  bind(scene, mw, ibv_inc_rkey(rkey), info(scene, IBV_ACCESS_REMOTE_WRITE, 0, 4096), "bind again");
}

void invalidate(bool remote, bool bound) {
  World world;
  Scene scene(world);
  auto* const mw = window(scene, IBV_MW_TYPE_2);
  if (mw == nullptr) return;
  const auto rkey = ibv_inc_rkey(mw->rkey);
  if (bound) bind(scene, mw, rkey, info(scene, IBV_ACCESS_REMOTE_WRITE, 0, 4096), "bind");
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 1;
  wr.opcode = remote ? IBV_WR_SEND_WITH_INV : IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = rkey;
  auto* const sender = remote ? scene.pair.other : scene.pair.one;
  if (remote) post_receive(scene.pair.one, world.bytes, 64, world.mr->lkey);
  did("invalidate, post", [&] { return ibv_post_send(sender, &wr, &bad); });
  for (int i = 0; i != (remote ? 2 : 1); ++i) {
    const auto wc = completion(world.cq, 5);
    line(wc.qp_num == sender->qp_num ? "invalidate" : "receiver",
         describe(wc, scene.pair.one, scene.pair.other));
  }
  write_by(scene, rkey, 8, "write after");
}

}  // namespace

ORACLE_CASE(windows, access_1, 120) { accesses(IBV_MW_TYPE_1); }
ORACLE_CASE(windows, access_2, 120) { accesses(IBV_MW_TYPE_2); }
ORACLE_CASE(windows, bounds) { bounds(); }
ORACLE_CASE(windows, twice) { invalidations(); }
ORACLE_CASE(windows, local_bound) { invalidate(false, true); }
ORACLE_CASE(windows, local_free) { invalidate(false, false); }
ORACLE_CASE(windows, remote_bound) { invalidate(true, true); }
ORACLE_CASE(windows, remote_free) { invalidate(true, false); }
ORACLE_CASE(windows, types) {
  World world;
  for (const int type : {0, 1, 2, 3, 255})
    made(text("type %d", type),
         [&] { return ibv_alloc_mw(world.pd, static_cast<ibv_mw_type>(type)); });
}
ORACLE_CASE(windows, region_in_use) {
  World world;
  Scene scene(world);
  auto* const mw = window(scene, IBV_MW_TYPE_2);
  if (mw == nullptr) return;
  const auto rkey = ibv_inc_rkey(mw->rkey);
  bind(scene, mw, rkey, info(scene, IBV_ACCESS_REMOTE_WRITE, 0, 4096), "bind");
  did("destroy the region", [&] { return ibv_dereg_mr(scene.mr); });
  write_by(scene, rkey, 8, "write");
  did("free the window", [&] { return ibv_dealloc_mw(mw); });
}
ORACLE_CASE(windows, wrapped) {
  World world;
  Scene scene(world);
  auto* const mw = window(scene, IBV_MW_TYPE_2);
  if (mw == nullptr) return;
  auto rkey = ibv_inc_rkey(mw->rkey);
  int bad_status = 0;
  for (int i = 0; i != 100 && bad_status == 0; ++i) {
    ibv_send_wr wr{}, invalidate{}, *bad = nullptr;
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = info(scene, IBV_ACCESS_REMOTE_WRITE, 0, 4096);
    wr.next = &invalidate;
    invalidate.opcode = IBV_WR_LOCAL_INV;
    invalidate.send_flags = IBV_SEND_SIGNALED;
    invalidate.invalidate_rkey = rkey;
    need(ibv_post_send(scene.pair.one, &wr, &bad) == 0, "post");
    bad_status = completion(world.cq).status;
    rkey = ibv_inc_rkey(rkey);
  }
  number("status", bad_status);
}
ORACLE_CASE(windows, foreign) {
  World world;
  Scene scene(world, kAllAccess);
  auto* const mw = window(scene, IBV_MW_TYPE_2);
  if (mw == nullptr) return;
  bind(scene, mw, ibv_inc_rkey(mw->rkey), info(scene, IBV_ACCESS_REMOTE_WRITE, 0, 4096),
       "without MW_BIND");
}

}  // namespace oracle
