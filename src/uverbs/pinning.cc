#include "uverbs/pinning.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <vector>

#include "os/unique_fd.h"
#include "uverbs/abi.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {
namespace {

int populate(std::uint64_t address, std::uint64_t size, int advice) {
  return ::madvise(reinterpret_cast<void*>(address), size, advice) == 0 ? 0 : errno;
}

/// Whether the kernel has MADV_POPULATE_READ: Linux 5.14 and later.
bool kernel_populates() {
  static const bool does = [] {
    alignas(kPage) static constexpr std::array<std::byte, kPage> kOwn{};
    return populate(reinterpret_cast<std::uint64_t>(kOwn.data()), kPage, MADV_POPULATE_READ) == 0;
  }();
  return does;
}

bool may_read(std::uint64_t address) {
  std::byte byte;
  const iovec to{&byte, 1}, from{reinterpret_cast<void*>(address), 1};
  return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == 1;
}

/// Probes write access by an atomic OR of 0 in the kernel, which changes no byte.
bool may_write(std::uint64_t address) {
  std::uint32_t own = 0;
  constexpr auto kOrNothing = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0);
  return ::syscall(SYS_futex, &own, FUTEX_WAKE_OP_PRIVATE, 0, 0,
                   reinterpret_cast<void*>(address & ~std::uint64_t{3}), kOrNothing) >= 0;
}

}  // namespace

Errno probe(std::uint64_t address, std::uint64_t size, bool is_written) {
  const auto first = address - address % kPage;
  for (std::uint64_t i = 0; i != pages_of(address, size); ++i) {
    const auto page = first + i * kPage;
    if (!(is_written ? may_write(page) : may_read(page))) return EFAULT;
  }
  return 0;
}

namespace {

/// Whether the program may write to the pages, and all are present, so that Linux would pin them
/// even if the program may not read them: get_user_pages_fast looks at the processor's page tables,
/// which have no write-only right.
bool are_there_to_be_written(std::uint64_t address, std::uint64_t size) {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;  // present bit of a pagemap entry
  const os::UniqueFd map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto first = address / kPage;
  for (std::uint64_t i = 0; i != pages_of(address, size); ++i) {
    std::uint64_t entry = 0;
    const auto at = static_cast<off_t>((first + i) * sizeof entry);
    if (::pread(map.get(), &entry, sizeof entry, at) != sizeof entry) return false;
    if ((entry & kPresent) == 0 || !may_write((first + i) * kPage)) return false;
  }
  return true;
}

Errno populate_pages(std::uint64_t address, std::uint64_t size, bool is_written) {
  if (!kernel_populates()) return probe(address, size, is_written);
  const auto first = address - address % kPage;
  const auto whole = pages_of(address, size) * kPage;
  const auto wrong = populate(first, whole, is_written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  return wrong == EINTR || wrong == EAGAIN || wrong == 0 ? wrong : EFAULT;
}

Errno pin_now(const UserMemory& memory, std::uint64_t address, std::uint64_t size,
              bool is_written) {
  auto wrong = populate_pages(address, size, is_written);
  if (wrong == EFAULT && !is_written && are_there_to_be_written(address, size)) wrong = 0;
  return wrong == 0 && memory.has_device_page(address, size) ? EFAULT : wrong;
}

/// The registration of this thread's next request, pinned before the request takes a lock.
struct Ahead {
  std::uint64_t address = 0, size = 0;
  bool is_written = false;
  Errno wrong = 0;
};
constinit thread_local std::optional<Ahead> ahead;

constexpr std::size_t kPiecesMax = 4096;  // a prefetch request's limit

/// REG_MR, and REREG_MR to other memory.
std::optional<Ahead> find_registration(const Request& request, const RegionAccess& access_of) {
  const auto of = [](const auto& in) -> std::optional<Ahead> {
    if ((in.access_flags & kOnDemand) != 0 || in.length == 0) return std::nullopt;
    return Ahead{
        .address = in.start, .size = in.length, .is_written = is_writable(in.access_flags)};
  };
  const auto command = request.get<std::uint32_t>(UVERBS_ATTR_WRITE_CMD);
  if (command == IB_USER_VERBS_CMD_REG_MR) {
    return of(request.get<ib_uverbs_reg_mr>(UVERBS_ATTR_CORE_IN));
  }
  if (command != IB_USER_VERBS_CMD_REREG_MR) return std::nullopt;
  auto in = request.get<ib_uverbs_rereg_mr>(UVERBS_ATTR_CORE_IN);
  if ((in.flags & kReregTranslation) == 0) return std::nullopt;
  if ((in.flags & kReregAccess) == 0) {
    const auto kept = access_of(in.mr_handle);
    if (!kept) return std::nullopt;
    in.access_flags = *kept;
  }
  return of(in);
}

std::optional<Ahead> find_umem(const Request& request) {
  const auto access = request.get<std::uint32_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS);
  const auto begin = request.get<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
  const auto size = request.get<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
  if (size == 0 || begin + size < begin) return std::nullopt;
  return Ahead{.address = begin, .size = size, .is_written = is_writable(access)};
}

/// Pages that are present already cost the request itself little. Its addresses are relative to
/// keys, and usually equal the program's own.
void prefetch_ahead(const UserMemory& memory, const Request& request) {
  constexpr auto kList = UVERBS_ATTR_ADVISE_MR_SGE_LIST;
  const auto size = request.size(kList);
  if (size == 0 || size > kPiecesMax * sizeof(ib_uverbs_sge)) return;
  std::vector<ib_uverbs_sge> list(size / sizeof(ib_uverbs_sge));
  if (request.copy_in(kList, std::as_writable_bytes(std::span(list))) != 0) return;
  const bool is_written = request.get<std::uint32_t>(UVERBS_ATTR_ADVISE_MR_ADVICE) ==
                          IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  for (const auto& piece : list) {
    if (piece.length != 0) (void)pin_now(memory, piece.addr, piece.length, is_written);
  }
}

}  // namespace

PinnedAhead::PinnedAhead(const UserMemory& memory, std::uint64_t argument,
                         const RegionAccess& access_of) {
  ib_uverbs_ioctl_hdr header{};
  if (!memory.read(argument, std::as_writable_bytes(std::span(&header, 1)))) return;
  // clang captures no structure that ends in a flexible array.
  const auto is = [called = std::pair(header.object_id, header.method_id)](auto object,
                                                                           auto method) {
    return called.first == object && called.second == method;
  };
  const bool registers = is(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
  const bool makes_umem = is(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
  const bool prefetches = is(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
  if (!registers && !makes_umem && !prefetches) return;
  Request request;
  if (request.parse(memory, argument) != 0) return;
  if (prefetches) {
    prefetch_ahead(memory, request);
    return;
  }
  ahead = registers ? find_registration(request, access_of) : find_umem(request);
  if (ahead) ahead->wrong = pin_now(memory, ahead->address, ahead->size, ahead->is_written);
}

PinnedAhead::~PinnedAhead() { ahead.reset(); }

Errno pin(const UserMemory& memory, std::uint64_t address, std::uint64_t size, bool is_written) {
  if (size == 0) return 0;
  const bool is_done =
      ahead && ahead->address == address && ahead->size == size && ahead->is_written == is_written;
  return is_done ? ahead->wrong : pin_now(memory, address, size, is_written);
}

}  // namespace softhca::uverbs
