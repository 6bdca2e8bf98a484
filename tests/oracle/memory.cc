// Chapter memory: which memory can be registered with which access, and how it then behaves.
#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <utility>

namespace oracle {
namespace {

const int kPlainAccess[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17};

void try_access(World& world, char* at, std::size_t length, unsigned access,
                const std::string& name) {
  errno = 0;
  auto* const mr = ibv_reg_mr(world.pd, at, length, static_cast<int>(access));
  line(name, mr != nullptr ? "ok" : error_name(errno));
  if (mr != nullptr) ibv_dereg_mr(mr);
}

/// Applies each kind of change to an existing region.
void try_rereg(World& world, int flags, int access, const std::string& name) {
  auto* const mr =
      ibv_reg_mr(world.pd, world.bytes, 8192, static_cast<int>(IBV_ACCESS_LOCAL_WRITE));
  auto* const pd = ibv_alloc_pd(world.context);
  need(mr != nullptr && pd != nullptr, "MR");
  const auto lkey = mr->lkey;
  errno = 0;
  const int returned = ibv_rereg_mr(mr, flags, pd, world.bytes + 8192, 4096, access);
  line(name, outcome(returned, errno));
  if (returned == 0) {
    // For other memory, Linux may return a key from its cache, which fills up gradually.
    const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    line(name + ", holds", text("%s, length %zu, PD %s",
                                moves              ? "a key"
                                : mr->lkey == lkey ? "the key"
                                                   : "another key",
                                mr->length, mr->pd == pd ? "new" : "old"));
  }
  did(name + ", PD", [&] { return ibv_dealloc_pd(pd); });
  did(name + ", destroy", [&] { return ibv_dereg_mr(mr); });
}

void invalid_ranges(World& world) {
  struct Range {
    const char* name;
    std::uintptr_t at;
    std::size_t length;
  };
  const auto base = reinterpret_cast<std::uintptr_t>(world.bytes);
  const Range ranges[] = {{"empty at a page", base, 0},
                          {"empty inside a page", base + 8, 0},
                          {"empty at 0", 0, 0},
                          {"a page at 0", 0, 4096},
                          {"one byte", base + 5, 1},
                          {"kernel", 0xffff800000000000, 4096},
                          {"not canonical", 0x0000900000000000, 4096},
                          {"wraps", base, ~std::size_t{0} - base + 2},
                          {"wraps by much", base, ~std::size_t{0}},
                          {"2^47", base, std::size_t{1} << 47},
                          {"2^40", base, std::size_t{1} << 40},
                          {"last byte", ~std::uintptr_t{0}, 1}};
  for (const auto& [name, at, length] : ranges) {
    for (const unsigned access : {0u, 1u, 64u, 65u})
      try_access(world, reinterpret_cast<char*>(at), length, access,
                 text("%s, access %u", name, access));
  }
}

void try_iova(World& world, const std::string& name, std::uint64_t iova, unsigned access) {
  errno = 0;
  auto* const mr = ibv_reg_mr_iova2(world.pd, world.bytes + 16, 8192, iova, access);
  line(name, mr != nullptr ? "ok" : error_name(errno));
  if (mr != nullptr) ibv_dereg_mr(mr);
}

}  // namespace

const char* memory_name(Memory memory) {
  constexpr const char* names[] = {
      "anonymous", "read-only",      "PROT_NONE",      "write-only",
      "shared",    "file",           "file read-only", "private file read-only",
      "hole",      "ends in a hole", "past the file",  "text",
      "constants", "thread stack"};
  return names[static_cast<int>(memory)];
}

namespace {

char* of_file(int open_flags, int protection, int flags, std::size_t length = 8192) {
  char name[] = "/tmp/oracle.XXXXXX";
  const int made = ::mkstemp(name);
  need(made >= 0 && ::ftruncate(made, static_cast<off_t>(length)) == 0, "file");
  const int file = ::open(name, open_flags);
  ::unlink(name);
  void* const at = ::mmap(nullptr, 8192, protection, flags, file, 0);
  need(at != MAP_FAILED, "mmap of a file");
  return static_cast<char*>(at);
}

char* with_hole(std::size_t at) {
  char* const got = pages(8192);
  need(::munmap(got + at, 8192 - at) == 0, "munmap");
  return got;
}

alignas(4096) const char constants[8192] = {1, 2, 3};

}  // namespace

char* memory_of(Memory memory) {
  switch (memory) {
    case Memory::kAnonymous:
      return pages(8192);
    case Memory::kReadOnly:
      return pages(8192, PROT_READ);
    case Memory::kNoAccess:
      return pages(8192, PROT_NONE);
    case Memory::kWriteOnly:
      return pages(8192, PROT_WRITE);
    case Memory::kShared:
      return static_cast<char*>(
          ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    case Memory::kFile:
      return of_file(O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED);
    case Memory::kFileReadOnly:
      return of_file(O_RDONLY, PROT_READ, MAP_SHARED);
    case Memory::kFilePrivate:
      return of_file(O_RDONLY, PROT_READ, MAP_PRIVATE);
    case Memory::kHole:
      return with_hole(0);
    case Memory::kEndsInHole:
      return with_hole(4096);
    case Memory::kPastFile:
      return of_file(O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED, 4096);
    case Memory::kText: {
      const auto at = reinterpret_cast<std::uintptr_t>(&memory_of);
      return reinterpret_cast<char*>(at & ~std::uintptr_t{4095});
    }
    case Memory::kConstants:
      return const_cast<char*>(constants);
    case Memory::kStack: {
      static thread_local char bytes[16384];
      return bytes;
    }
  }
  return nullptr;
}

ORACLE_CASE(memory, kinds) {
  World world;
  for (int kind = 0; kind <= static_cast<int>(Memory::kStack); ++kind) {
    const auto memory = static_cast<Memory>(kind);
    auto* const at = memory_of(memory);
    for (const int access : kPlainAccess)
      try_access(world, at, 4097, access, text("%s, access 0x%x", memory_name(memory), access));
  }
}
ORACLE_CASE(memory, kinds_on_demand) {
  World world;
  for (int kind = 0; kind <= static_cast<int>(Memory::kStack); ++kind) {
    const auto memory = static_cast<Memory>(kind);
    auto* const at = memory_of(memory);
    for (const int access : {0, 1, 2, 3, 4, 7, 15, 16})
      try_access(world, at, 4097, access | IBV_ACCESS_ON_DEMAND,
                 text("%s, access 0x%x", memory_name(memory), access));
  }
}
ORACLE_CASE(memory, access_flags) {
  World world;
  for (int bit = 0; bit != 32; ++bit)
    try_access(world, world.bytes, 4096, 1u << bit, text("bit %d", bit));
  for (int one = 0; one != 32; ++one) {
    for (int other = one + 1; other != 32; ++other)
      try_access(world, world.bytes, 4096, 1u << one | 1u << other,
                 text("bits %d, %d", one, other));
  }
}
ORACLE_CASE(memory, access_with_write) {
  World world;
  for (int one = 1; one != 32; ++one) {
    for (int other = one + 1; other < 12; ++other)
      try_access(world, world.bytes, 4096, 1u | 1u << one | 1u << other,
                 text("LOCAL_WRITE and bits %d, %d", one, other));
  }
}
ORACLE_CASE(memory, ranges) {
  World world;
  invalid_ranges(world);
}
ORACLE_CASE(memory, implicit) {
  World world;
  for (const unsigned access : {64u, 65u, 67u, 71u, 79u, 80u, 96u, 192u, 0u, 1u})
    try_access(world, nullptr, SIZE_MAX, access, text("all of memory, access %u", access));
}
ORACLE_CASE(memory, iova) {
  World world;
  for (const unsigned access : {0u, 1u, 15u, 32u, 33u, 64u, 65u, 96u, 1u << 20}) {
    for (const std::uint64_t iova :
         {0ull, 16ull, 8ull, 4096ull, 0x1010ull, 1ull << 47, ~0ull - 8191})
      try_iova(world, text("at 0x%llx, access 0x%x", static_cast<unsigned long long>(iova), access),
               iova, access);
  }
}
ORACLE_CASE(memory, rereg) {
  World world;
  for (int flags = -1; flags != 10; ++flags) {
    for (const int access : {0, 1, 2, 7, 15, 16, 32, 64, 128, 256, 512, 1024, 1 << 20, 1 << 30})
      try_rereg(world, flags, access, text("flags %d, access %d", flags, access));
  }
}
/// So many pages that no two of them are contiguous: all are the same page of memory.
char* scattered(std::size_t count) {
  static const int file = ::memfd_create("page", 0);
  need(file >= 0 && ::ftruncate(file, 4096) == 0, "a page of memory");
  char* const all = pages(count * 4096);
  for (std::size_t i = 0; i != count; ++i) {
    void* const at =
        ::mmap(all + i * 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    need(at != MAP_FAILED, "mmap of the page");
  }
  return all;
}
ORACLE_CASE(memory, rereg_keys) {
  World world;
  for (const auto& [before, after] :
       {std::pair(1, 1), std::pair(1, 4), std::pair(1, 5), std::pair(4, 1), std::pair(5, 8),
        std::pair(5, 9), std::pair(64, 64), std::pair(64, 65), std::pair(65, 128)}) {
    for (const int flags : {1, 3, 5, 7}) {
      auto* const mr = ibv_reg_mr(world.pd, scattered(before), before * 4096ul, 1);
      need(mr != nullptr, "MR");
      const auto key = mr->lkey;
      const auto name = text("%d pages, then %d, flags %d", before, after, flags);
      did(name,
          [&] { return ibv_rereg_mr(mr, flags, world.pd, scattered(after), after * 4096ul, 7); });
      line(name + ", key", mr->lkey != key ? "another" : mr->rkey != mr->lkey ? "two" : "the same");
    }
  }
}
ORACLE_CASE(memory, rereg_on_demand) {
  World world;
  for (const bool all : {false, true}) {
    for (const int access : {0, 1, 64, 65, 71, 65 | 32}) {
      auto* const mr = ibv_reg_mr(world.pd, all ? nullptr : world.bytes, all ? SIZE_MAX : 8192, 65);
      need(mr != nullptr, "MR");
      const auto key = mr->lkey;
      const auto name = text("%s, access %d", all ? "all of memory" : "two pages", access);
      const int changed = did(name, [&] {
        return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access);
      });
      if (changed == 0) line(name + ", key", mr->lkey != key ? "another" : "the same");
    }
  }
}
ORACLE_CASE(memory, rereg_kinds) {
  World world;
  for (int kind = 0; kind <= static_cast<int>(Memory::kStack); ++kind) {
    const auto memory = static_cast<Memory>(kind);
    auto* const at = memory_of(memory);
    for (const int access : {0, 1, 2, 3, 7}) {
      const auto name = text("%s, access %d", memory_name(memory), access);
      auto* mr = ibv_reg_mr(world.pd, world.bytes, 8192, static_cast<int>(IBV_ACCESS_LOCAL_WRITE));
      need(mr != nullptr, "MR");
      did(name, [&] {
        return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
                            nullptr, at, 4097, access);
      });
      did(name + ", destroy", [&] { return ibv_dereg_mr(mr); });
      mr = ibv_reg_mr(world.pd, at, 4097, 0);
      if (mr == nullptr) continue;
      did(name + ", from 0", [&] {
        return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access);
      });
      did(name + ", from 0, destroy", [&] { return ibv_dereg_mr(mr); });
    }
  }
}
ORACLE_CASE(memory, advise) {
  World world;
  auto* const on_demand = ibv_reg_mr(world.pd, pages(8192), 8192, 65);
  auto* const read_only = ibv_reg_mr(world.pd, pages(8192, PROT_READ), 8192, 64);
  auto* const foreign_pd = ibv_alloc_pd(world.context);
  auto* const foreign = ibv_reg_mr(foreign_pd, pages(8192), 8192, 65);
  need(on_demand && read_only && foreign, "MRs");
  struct Named {
    const char* name;
    ibv_mr* mr;
  };
  const Named all[] = {{"on demand", on_demand},
                       {"read-only", read_only},
                       {"of another PD", foreign},
                       {"pinned", world.mr}};
  for (const auto& [name, mr] : all) {
    for (const unsigned advice : {0u, 1u, 2u, 3u}) {
      for (const unsigned flags : {0u, 1u, 2u}) {
        for (const unsigned length : {0u, 4096u, 8192u, 8193u}) {
          ibv_sge piece{reinterpret_cast<std::uintptr_t>(mr->addr), length, mr->lkey};
          did(text("%s, advice %u, flags %u, %u bytes", name, advice, flags, length), [&] {
            return ibv_advise_mr(world.pd, static_cast<ibv_advise_mr_advice>(advice), flags, &piece,
                                 1);
          });
        }
      }
    }
  }
  ibv_sge wrong{reinterpret_cast<std::uintptr_t>(on_demand->addr), 4096, 0x12345600};
  const auto prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
  did("unknown key", [&] { return ibv_advise_mr(world.pd, prefetch, 1, &wrong, 1); });
  did("no pieces", [&] { return ibv_advise_mr(world.pd, prefetch, 1, &wrong, 0); });
}
ORACLE_CASE(memory, doorbell_page) {
  World world;
  auto* const qp = create(world, Kind::kRc);
  need(qp != nullptr, "QP");
  mlx5dv_qp places{};
  mlx5dv_obj all{};
  all.qp = {qp, &places};
  need(mlx5dv_init_obj(&all, MLX5DV_OBJ_QP) == 0 && places.bf.reg != nullptr, "doorbell");
  const auto at = reinterpret_cast<std::uintptr_t>(places.bf.reg) & ~std::uintptr_t{4095};
  for (const unsigned access : {0u, 1u, 2u, 7u, 16u}) {
    for (const std::size_t length : {1ul, 4096ul})
      try_access(world, reinterpret_cast<char*>(at), length, access,
                 text("%zu bytes, access %u", length, access));
  }
}
ORACLE_CASE(memory, others) {
  World world;
  auto* const null_mr = made("null MR", [&] { return ibv_alloc_null_mr(world.pd); });
  if (null_mr != nullptr) did("null MR, destroy", [&] { return ibv_dereg_mr(null_mr); });
  for (const int file : {-1, 0, 1000})
    made(text("dma-buf %d", file),
         [&] { return ibv_reg_dmabuf_mr(world.pd, 0, 4096, 0, file, 1); });
  made("dma-buf at an offset", [&] { return ibv_reg_dmabuf_mr(world.pd, 1, 4096, 0, -1, 1); });
  for (const std::size_t length : {0ul, 1ul, 64ul, 4096ul, 1ul << 20}) {
    ibv_alloc_dm_attr in{length, 0, 0};
    auto* const dm = made(text("device memory of %zu", length),
                          [&] { return ibv_alloc_dm(world.context, &in); });
    if (dm != nullptr) did("free", [&] { return ibv_free_dm(dm); });
  }
  made("import", [&] { return ibv_import_mr(world.pd, world.mr->handle); });
  made("import of nothing", [&] { return ibv_import_mr(world.pd, 0x7ffffff); });
  made("import of a PD", [&] { return ibv_import_pd(world.context, world.pd->handle); });
  made("import of no PD", [&] { return ibv_import_pd(world.context, 0x7ffffff); });
}

}  // namespace oracle
