// Page protections of memory that a device uses: a peer's access ends as on hardware, and the
// program's protections stay as they are.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string>

#include "lives.h"

namespace lives {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kOnDemand = kAccess | IBV_ACCESS_ON_DEMAND;

/// A constant of the program.
alignas(kPage) const char constants[2 * kPage] = {'c'};

sigjmp_buf back;

/// Whether the program's own store to `place` faults.
bool store_faults(volatile char* place) {
  struct sigaction action{}, before{};
  action.sa_handler = [](int) { siglongjmp(back, 1); };
  ::sigaction(SIGSEGV, &action, &before);
  const bool faults = sigsetjmp(back, 1) != 0;
  if (!faults) *place = 'x';
  ::sigaction(SIGSEGV, &before, nullptr);
  return faults;
}

char* map(int protection, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1,
          std::size_t size = kPage) {
  void* const got = ::mmap(nullptr, size, protection, flags, file, 0);
  expect(got != MAP_FAILED, "mmap");
  return static_cast<char*>(got);
}

/// "r--p" and the like, of the mapping of `place`.
std::string protection_of(const void* place) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  expect(maps != nullptr, "maps");
  std::string found = "none";
  char line[512];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    std::uintptr_t begin = 0, end = 0;
    char how[5] = "";
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, how) == 3 &&
        reinterpret_cast<std::uintptr_t>(place) - begin < end - begin) {
      found = how;
    }
  }
  std::fclose(maps);
  return found;
}

/// access() with two queue pairs of its own.
struct Side {
  Loop loop;
  char* buffer = memory();
  ibv_mr* key = ibv_reg_mr(loop.pd, buffer, kSize, kAccess);
  const char* operator()(ibv_wr_opcode verb, const void* remote, std::uint32_t rkey,
                         std::uint32_t size = 8) const {
    std::memset(buffer, 'w', size);
    return access(loop, verb, buffer, key->lkey, remote, rkey, size);
  }
};

ibv_mr* register_all(const Loop& loop) {
  auto* const all = ibv_reg_mr(loop.pd, nullptr, SIZE_MAX, kOnDemand);
  expect(all != nullptr, "implicit key");
  return all;
}

void show(const char* what, const char* status, const void* place) {
  std::printf("%s: %s, %s\n", what, status, protection_of(place).c_str());
}

/// Guard pages and constants that an implicit on-demand key covers.
int guarded() {
  auto* const none = map(PROT_NONE);
  auto* const read_only = map(PROT_READ);
  const auto rkey = [](const Side& side) { return register_all(side.loop)->rkey; };
  {
    const Side side;
    show("read of a guard page", side(IBV_WR_RDMA_READ, none, rkey(side)), none);
  }
  {
    const Side side;
    show("write to a guard page", side(IBV_WR_RDMA_WRITE, none, rkey(side)), none);
  }
  {
    const Side side;
    show("read of a constant", side(IBV_WR_RDMA_READ, constants, rkey(side)), constants);
    std::printf("%c\n", side.buffer[0]);
  }
  {
    const Side side;
    show("write to a constant", side(IBV_WR_RDMA_WRITE, constants, rkey(side)), constants);
    std::printf("%c\n", *const_cast<const volatile char*>(constants));
  }
  {
    const Side side;
    show("write to a page to be read", side(IBV_WR_RDMA_WRITE, read_only, rkey(side)), read_only);
  }
  std::printf("stores fault: %d %d\n", store_faults(none), store_faults(read_only));
  return 0;
}

/// A shared mapping of a file that is open read-only.
int read_only_file() {
  const int writable = ::memfd_create("shared", MFD_CLOEXEC);
  expect(::ftruncate(writable, kPage) == 0, "ftruncate");
  const auto name = "/proc/self/fd/" + std::to_string(writable);
  auto* const shared = map(PROT_READ, MAP_SHARED, ::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  const Side side;
  auto* const key = ibv_reg_mr(side.loop.pd, shared, kPage, kOnDemand);
  expect(key != nullptr, "registration on demand");
  show("write", side(IBV_WR_RDMA_WRITE, shared, key->rkey), shared);
  return 0;
}

/// An access to a hole fails. Afterwards the other page works, and so does the hole once it is
/// filled.
int hole() {
  auto* const area = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 2 * kPage);
  std::memset(area, 42, 2 * kPage);
  std::uint32_t rkey = 0;
  const auto read = [&](const Side& side, const char* at) {
    rkey = ibv_reg_mr(side.loop.pd, area, 2 * kPage, kOnDemand)->rkey;
    (void)at;
  };
  const Side one;
  read(one, area);
  // An error ends a pair of QPs, so create another pair in the same domain.
  ::munmap(area, kPage);
  std::printf("hole: %s\n", one(IBV_WR_RDMA_READ, area, rkey));
  Loop more;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = one.loop.cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {4, 4, 1, 1, 0};
  more.context = one.loop.context;
  more.cq = one.loop.cq;
  more.pd = one.loop.pd;
  more.qp = ibv_create_qp(more.pd, &attributes);
  more.peer = ibv_create_qp(more.pd, &attributes);
  ibv_gid gid;
  expect(ibv_query_gid(more.context, 1, kGidIndex, &gid) == 0, "GID");
  connect(more.qp, more.peer->qp_num, gid);
  connect(more.peer, more.qp->qp_num, gid);
  for (ibv_wc rest{}; ibv_poll_cq(more.cq, 1, &rest) > 0;) {
  }
  const auto again = [&](const char* at) {
    return access(more, IBV_WR_RDMA_READ, one.buffer, one.key->lkey, at, rkey);
  };
  std::printf("beside it: %s", again(area + kPage));
  std::printf(" %d\n", one.buffer[0]);
  expect(::mmap(area, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) == area,
         "mmap");
  area[0] = 43;
  std::printf("filled: %s", again(area));
  std::printf(" %d\n", one.buffer[0]);
  return 0;
}

/// Memory that the program protects after it has registered it: hardware has pinned the memory, and
/// ignores protections. The program's protections stay in force for the program.
int protected_later() {
  const Side side;
  const auto try_with = [&](const char* what, char* area, int protection, ibv_wr_opcode verb) {
    auto* const key = ibv_reg_mr(side.loop.pd, area, kPage, kAccess);
    expect(key != nullptr, "registration");
    std::memset(area, 'o', kPage);
    expect(::mprotect(area, kPage, protection) == 0, "mprotect");
    const auto* status = side(verb, area, key->rkey);
    // A page that was opened for the device is closed at the end of a turn: this call takes one.
    ibv_wc none{};
    (void)ibv_poll_cq(side.loop.cq, 1, &none);
    show(what, status, area);
    const bool faults = store_faults(area);
    expect(::mprotect(area, kPage, PROT_READ) == 0, "mprotect");
    std::printf("%s, %c\n", faults ? "stores fault" : "stores pass",
                verb == IBV_WR_RDMA_READ ? side.buffer[0] : area[0]);
  };
  const auto fresh = [] { return map(PROT_READ | PROT_WRITE); };
  try_with("write, to be read", fresh(), PROT_READ, IBV_WR_RDMA_WRITE);
  try_with("write, guarded", fresh(), PROT_NONE, IBV_WR_RDMA_WRITE);
  try_with("read, guarded", fresh(), PROT_NONE, IBV_WR_RDMA_READ);
  try_with("write, code", fresh(), PROT_READ | PROT_EXEC, IBV_WR_RDMA_WRITE);
  try_with("write, shared", map(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS), PROT_READ,
           IBV_WR_RDMA_WRITE);
  return 0;
}

/// A file is truncated: the access fails, and the program's mapping stays.
int cut_off() {
  const int file = ::memfd_create("cut", MFD_CLOEXEC);
  expect(::ftruncate(file, 2 * kPage) == 0, "ftruncate");
  auto* const area = map(PROT_READ | PROT_WRITE, MAP_SHARED, file, 2 * kPage);
  const Side side;
  auto* const key = ibv_reg_mr(side.loop.pd, area, 2 * kPage, kAccess);
  expect(key != nullptr, "registration");
  expect(::ftruncate(file, kPage) == 0, "ftruncate");
  const auto* status = side(IBV_WR_RDMA_WRITE, area + kPage, key->rkey);
  std::printf("%s, %s\n", std::strcmp(status, "success") == 0 ? "success" : "an error",
              protection_of(area + kPage).c_str());
  expect(::ftruncate(file, 2 * kPage) == 0, "ftruncate");
  area[kPage] = 'b';
  char byte = 0;
  expect(::pread(file, &byte, 1, kPage) == 1, "pread");
  std::printf("%c\n", byte);
  return 0;
}

/// Memory protection keys restrict the program's threads, and no device.
int memory_keys() {
  const int key = ::pkey_alloc(0, PKEY_DISABLE_ACCESS);
  if (key < 0) {
    std::puts("success, r");
    return 0;
  }
  const Side side;
  auto* const area = map(PROT_READ | PROT_WRITE);
  area[0] = 'r';
  auto* const region = ibv_reg_mr(side.loop.pd, area, kPage, kAccess);
  expect(region != nullptr, "registration");
  expect(::pkey_mprotect(area, kPage, PROT_READ | PROT_WRITE, key) == 0, "pkey_mprotect");
  const auto* status = side(IBV_WR_RDMA_READ, area, region->rkey);
  std::printf("%s, %c", status, side.buffer[0]);
  std::printf("%s\n", store_faults(area) ? "" : ": the key is lifted");
  return 0;
}

/// If the source is unmapped, the operation fails, and no zeros arrive.
int no_zeros() {
  for (const auto verb : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND}) {
    const Side side;
    auto* const source = memory();
    auto* const source_key = ibv_reg_mr(side.loop.pd, source, kSize, kAccess);
    expect(source_key != nullptr, "registration");
    std::memset(side.buffer, 't', kSize);
    ibv_sge place{reinterpret_cast<std::uintptr_t>(side.buffer), 64, side.key->lkey};
    ibv_recv_wr receive{}, *bad;
    receive.sg_list = &place;
    receive.num_sge = 1;
    if (verb == IBV_WR_SEND) expect(ibv_post_recv(side.loop.peer, &receive, &bad) == 0, "receive");
    ::munmap(source, kSize);
    const bool reads = verb == IBV_WR_RDMA_READ;
    const auto* status =
        access(side.loop, verb, reads ? side.buffer : source, (reads ? side.key : source_key)->lkey,
               reads ? source : side.buffer, (reads ? source_key : side.key)->rkey, 64);
    std::printf("%s, %c\n", std::strcmp(status, "success") == 0 ? "success" : "an error",
                side.buffer[0]);
  }
  return 0;
}

void try_registration(const char* what, void* place, std::size_t size, int access) {
  static ibv_pd* const pd = [] {
    auto** const list = ibv_get_device_list(nullptr);
    return ibv_alloc_pd(ibv_open_device(list[0]));
  }();
  errno = 0;
  auto* const key = ibv_reg_mr(pd, place, size, access);
  std::printf("%s: %s", what, key != nullptr ? "ok" : std::strerror(errno));
  if (key != nullptr && access == 0) {
    const int result =
        ibv_rereg_mr(key, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE);
    std::printf(", again: %d %s", result, result != 0 ? std::strerror(errno) : "");
  }
  std::puts("");
}

/// Registration of memory with each kind of protection.
int registrations() {
  const int file = ::memfd_create("file", MFD_CLOEXEC);
  expect(::ftruncate(file, kPage) == 0, "ftruncate");
  const auto name = "/proc/self/fd/" + std::to_string(file);
  const int read_only = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  const struct {
    const char* what;
    void* place;
  } kinds[] = {{"to be read", map(PROT_READ)},
               {"private file", map(PROT_READ, MAP_PRIVATE, file)},
               {"shared file", map(PROT_READ, MAP_SHARED, file)},
               {"read-only file", map(PROT_READ, MAP_SHARED, read_only)},
               {"constant", const_cast<char*>(constants)},
               {"guard", map(PROT_NONE)},
               {"to be written", map(PROT_WRITE)},
               {"memory", map(PROT_READ | PROT_WRITE)}};
  for (const auto& kind : kinds) {
    try_registration(kind.what, kind.place, kPage, IBV_ACCESS_LOCAL_WRITE);
    try_registration(kind.what, kind.place, kPage, 0);
  }
  auto* const area = map(PROT_READ | PROT_WRITE);
  try_registration("window", map(PROT_READ), kPage, IBV_ACCESS_MW_BIND);
  try_registration("empty", area, 0, IBV_ACCESS_LOCAL_WRITE);
  try_registration("kernel", reinterpret_cast<void*>(0xffff888000000000), kPage, 0);
  try_registration("no address", reinterpret_cast<void*>(0x0000900000000000), kPage, 0);
  return 0;
}

constexpr Case kCases[] = {{"guarded", guarded},   {"read-only-file", read_only_file},
                           {"hole", hole},         {"protected-later", protected_later},
                           {"cut-off", cut_off},   {"memory-keys", memory_keys},
                           {"no-zeros", no_zeros}, {"registrations", registrations}};

}  // namespace

std::span<const Case> pages() { return kCases; }

}  // namespace lives
