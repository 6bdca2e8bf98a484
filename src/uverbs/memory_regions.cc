#include "uverbs/memory_regions.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "spec/connectx/caps.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/mkey_number.h"
#include "util/bits.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/locked_memory.h"
#include "uverbs/objects.h"
#include "uverbs/pinning.h"
#include "uverbs/program_pages.h"
#include "uverbs/region_rules.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

using spec::command_opcode;

namespace {

using namespace rules;

constexpr AttributeRule kQueryMr[] = {
    object(UVERBS_ATTR_QUERY_MR_HANDLE), value_out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4),
    value_out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4), value_out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8),
    value_out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, 8, false)};
constexpr AttributeRule kAdviseMr[] = {
    object(UVERBS_ATTR_ADVISE_MR_PD_HANDLE), const_in(UVERBS_ATTR_ADVISE_MR_ADVICE, 4),
    flags_in(UVERBS_ATTR_ADVISE_MR_FLAGS), in(UVERBS_ATTR_ADVISE_MR_SGE_LIST, 16)};
constexpr AttributeRule kDestroyMr[] = {object(UVERBS_ATTR_DESTROY_MR_HANDLE)};

constexpr std::uint32_t kAnyQp = 0xffffff;
constexpr unsigned kLogSmallPage = 12;
/// One page of this size covers all of a program's memory.
constexpr unsigned kLogKeyPageMax = 47;
static_assert(Device::kProgramMemory == pcie::Iova{1} << kLogKeyPageMax);
/// Bus addresses that the device does not reach, for addresses that no program has.
constexpr pcie::Iova kNowhere = 3 * Device::kProgramMemory;

/// The pages of a region: as large as the common alignment of its two addresses allows. Their bus
/// addresses are contiguous.
struct Pages {
  explicit Pages(const ib_uverbs_reg_mr& in) {
    while (log_size < kLogKeyPageMax &&
           (in.start ^ in.hca_va) % (std::uint64_t{2} << log_size) == 0 &&  // no format: a size
           (std::uint64_t{1} << log_size) < in.length) {
      ++log_size;
    }
    const auto size = std::uint64_t{1} << log_size;
    begin = in.start & ~(size - 1);
    count = (in.start + in.length - begin + size - 1) / size;
  }
  /// @pre i < count
  pcie::Iova bus_address(std::uint64_t i, bool on_demand) const {
    const auto page = begin + (i << log_size);
    if (page >= Device::kProgramMemory) return kNowhere;
    return on_demand ? Device::on_demand_address(page) : Device::bus_address(page);
  }
  unsigned log_size = kLogSmallPage;
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};

std::uint64_t small_pages(const ib_uverbs_reg_mr& in) {
  return (in.start % kPage + in.length + kPage - 1) / kPage;
}

/// Linux takes the keys of pinned memory from a cache with room for powers of two of pages, at
/// least four (mlx5_mkey_cache_init). Contiguous pages count as one there, which no program can
/// rely on, and not here. 0: there is no such key.
std::uint64_t room_of(const ib_uverbs_reg_mr& in) {
  constexpr std::uint64_t kLeast = 4, kMost = kLeast << 20;  // no format: a count
  const auto pages = small_pages(in);
  if ((in.access_flags & kOnDemand) != 0 || pages > kMost) return 0;
  return std::max(kLeast, std::bit_ceil(pages));
}

/// Runs CREATE_MKEY. Nothing if the device refuses it.
std::optional<std::uint32_t> create_key(Device& device, const ib_uverbs_reg_mr& in,
                                        std::uint32_t pdn) {
  const Pages pages(in);
  const auto octwords = (pages.count * spec::mtt_entry::kSize + 15) / 16;
  Command<spec::create_mkey_in> create(command_opcode::CREATE_MKEY, octwords * 16);
  create.set(spec::create_mkey_in::translations_octword_actual_size,
             static_cast<std::uint32_t>(octwords));
  using Mkc = spec::mkey_context;
  const auto context = create.sub(spec::create_mkey_in::mkey_context);
  context.set(Mkc::access_mode, static_cast<std::uint32_t>(spec::mkey_access_mode::MTT));
  context.set(Mkc::lr, 1);
  context.set(Mkc::lw, (in.access_flags & kLocalWrite) != 0);
  context.set(Mkc::rr, (in.access_flags & kRemoteRead) != 0);
  context.set(Mkc::rw, (in.access_flags & kRemoteWrite) != 0);
  context.set(Mkc::a, (in.access_flags & kRemoteAtomic) != 0);
  context.set(Mkc::umr_en, 1);
  context.set(Mkc::pd, pdn);
  context.set(Mkc::qpn, kAnyQp);
  context.set(Mkc::start_addr, in.hca_va);
  context.set(Mkc::len, in.length);
  context.set(Mkc::translations_octword_size, static_cast<std::uint32_t>(octwords));
  context.set(Mkc::log_page_size, pages.log_size);
  const auto variant = device.hca().next_key_variant();
  context.set(Mkc::mkey, variant);
  auto list = create.all().subspan(spec::create_mkey_in::klm_pas_mtt_offset);
  for (std::uint64_t i = 0; i != pages.count; ++i, list = list.subspan(spec::mtt_entry::kSize)) {
    const auto address = pages.bus_address(i, (in.access_flags & kOnDemand) != 0);
    util::MutableView<spec::mtt_entry>(list).set(spec::mtt_entry::ptag,
                                                 util::part_of(address, spec::mtt_entry::ptag));
  }
  const auto out = device.commands().execute<spec::create_mkey_out>(create);
  if (!out) return std::nullopt;
  return spec::mkey_of(out->get(spec::create_mkey_out::mkey_index), variant);
}

}  // namespace

std::span<const Method<MemoryRegionCommands>> MemoryRegionCommands::methods() {
  static constexpr Method<MemoryRegionCommands> kMethods[] = {
      {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, kDestroyMr, &MemoryRegionCommands::destroy_mr},
      {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, kQueryMr, &MemoryRegionCommands::query_mr},
      {UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, kAdviseMr, &MemoryRegionCommands::advise_mr},
  };
  return kMethods;
}

std::span<const WriteCommand<MemoryRegionCommands>> MemoryRegionCommands::write_commands() {
  static constexpr WriteCommand<MemoryRegionCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_REG_MR, 40, 12}, &MemoryRegionCommands::reg_mr},
      {{IB_USER_VERBS_CMD_REREG_MR, 48, 8}, &MemoryRegionCommands::rereg_mr},
  };
  return kCommands;
}

Errno MemoryRegionCommands::reg_mr(Request& request) {
  auto in = request.get<ib_uverbs_reg_mr>(kCoreIn);
  ProtectionDomain* pd = nullptr;
  if (const auto missing = file_.objects.find(in.pd_handle, pd); missing != 0) return missing;
  if (const auto wrong = check_region(in); wrong != 0) return wrong;
  if (is_implicit(in)) in.length = Device::kProgramMemory;
  LockedPages locked;
  if (const auto wrong = lock_region(file_.memory, in, locked); wrong != 0) return wrong;
  if (const auto wrong = populate_region(file_.memory, in); wrong != 0) return wrong;
  const auto key = create_key(file_.device, in, pd->pdn);
  if (!key) return ENOMEM;
  auto region = std::make_unique<MemoryRegion>(file_.device, *pd);
  region->key = *key;
  region->memory = {.begin = in.start, .size = in.length};
  region->iova = in.hca_va;
  region->access = in.access_flags;
  region->is_writable = is_writable(in.access_flags);
  region->locked = std::move(locked);
  region->room = room_of(in);
  Reply reply(request, file_.objects, std::move(region));
  const std::array answer{reply.handle(), *key, *key};  // ib_uverbs_reg_mr_resp: LKey is RKey
  return reply.put(kCoreOut, answer).end();
}

namespace {

using driver::connectx::KeyChange;
using driver::connectx::KeyMemory;

/// The registration that a rereg asks for.
ib_uverbs_reg_mr wanted_of(const MemoryRegion& region, const ib_uverbs_rereg_mr& in) {
  ib_uverbs_reg_mr wanted{};
  const bool moves = (in.flags & kReregTranslation) != 0;
  wanted.start = moves ? in.start : region.memory.begin;
  wanted.length = moves ? in.length : region.is_implicit() ? UINT64_MAX : region.memory.size;
  wanted.hca_va = moves ? in.hca_va : region.iova;
  wanted.access_flags = (in.flags & kReregAccess) != 0 ? in.access_flags : region.access;
  return wanted;
}

/// Whether the key changes in place (mlx5_ib_rereg_user_mr), so that peers keep it.
bool changes_in_place(const MemoryRegion& region, const ib_uverbs_reg_mr& wanted, bool moves) {
  // can_use_umr_rereg_access of mlx5_ib.
  constexpr std::uint32_t kChangedInPlace =
      kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic | kRelaxedOrdering;
  if (((wanted.access_flags ^ region.access) & ~kChangedInPlace) != 0) return false;
  if (region.key == 0 || region.is_implicit()) return false;
  if (!moves) return true;
  // can_use_umr_rereg_pas. The list of a program that has chosen an odd iova may be too long here.
  return small_pages(wanted) <= region.room && Pages(wanted).count <= KeyMemory::kPagesMax;
}

KeyChange change_of(const MemoryRegion& region, const ib_uverbs_reg_mr& wanted, std::uint32_t pdn,
                    bool moves) {
  KeyChange change{.key = region.key,
                   .pd = pdn,
                   .local_write = (wanted.access_flags & kLocalWrite) != 0,
                   .remote_read = (wanted.access_flags & kRemoteRead) != 0,
                   .remote_write = (wanted.access_flags & kRemoteWrite) != 0,
                   .remote_atomic = (wanted.access_flags & kRemoteAtomic) != 0};
  if (!moves) return change;
  const Pages pages(wanted);
  auto& memory = change.memory.emplace();
  memory.start = wanted.hca_va;
  memory.length = wanted.length;
  memory.log_page_size = pages.log_size;
  memory.page_count = pages.count;
  for (std::size_t i = 0; i != pages.count; ++i) memory.pages[i] = pages.bus_address(i, false);
  return change;
}

}  // namespace

/// Rights, protection domain and memory change in place where Linux does so. Otherwise a new key
/// replaces the old one, which ends.
Errno MemoryRegionCommands::rereg_mr(Request& request) {
  const auto in = request.get<ib_uverbs_rereg_mr>(kCoreIn);
  MemoryRegion* region = nullptr;
  if (const auto missing = file_.objects.find(in.mr_handle, region); missing != 0) return missing;
  if (in.flags == 0) return EINVAL;
  constexpr std::uint32_t kKnown = kReregTranslation | kReregDomain | kReregAccess;
  if ((in.flags & ~kKnown) != 0) return EOPNOTSUPP;
  auto* pd = static_cast<ProtectionDomain*>(region->pd.get());
  if ((in.flags & kReregDomain) != 0) {
    if (const auto missing = file_.objects.find(in.pd_handle, pd); missing != 0) return missing;
  }
  const bool moves = (in.flags & kReregTranslation) != 0;
  auto wanted = wanted_of(*region, in);
  // Linux makes no second key for the pages of a region on demand.
  const bool is_reused = !moves && region->is_on_demand();
  if (is_reused && (wanted.access_flags & kOnDemand) == 0) return EOPNOTSUPP;
  if (const auto wrong = check_region(wanted); wrong != 0) return wrong;
  if (is_implicit(wanted)) wanted.length = Device::kProgramMemory;
  // Pages that were pinned for reading are not pinned again.
  const bool pins_again = moves || (in.flags & kReregAccess) == 0;
  if (!pins_again && is_writable(wanted.access_flags) && !region->is_writable) return EACCES;
  bool in_place = changes_in_place(*region, wanted, moves);
  if (is_reused && !in_place && !region->is_implicit()) return EOPNOTSUPP;
  // The old pages stay locked until the new ones are.
  const bool locks_again = moves || region->is_on_demand();
  LockedPages locked;
  if (const auto wrong = locks_again ? lock_region(file_.memory, wanted, locked) : 0; wrong != 0) {
    return wrong;
  }
  if (const auto wrong = populate_region(file_.memory, wanted); wrong != 0) return wrong;
  in_place = in_place && file_.device.change_key(change_of(*region, wanted, pd->pdn, moves));
  if (!in_place) {
    const auto key = create_key(file_.device, wanted, pd->pdn);
    if (!key) return ENOMEM;
    region->revoke();
    region->key = *key;
    region->room = room_of(wanted);
  }
  if (locks_again) region->locked = std::move(locked);
  region->pd = Use(pd);
  region->memory = {.begin = wanted.start, .size = wanted.length};
  region->iova = wanted.hca_va;
  region->access = wanted.access_flags;
  region->is_writable = (!moves && region->is_writable) || is_writable(wanted.access_flags);
  return request.put(kCoreOut, ib_uverbs_rereg_mr_resp{.lkey = region->key, .rkey = region->key});
}

std::optional<std::uint32_t> region_access(const Objects& objects, std::uint32_t handle) {
  const MemoryRegion* region = nullptr;
  if (objects.find(handle, region) != 0) return std::nullopt;
  return region->access;
}

Errno MemoryRegionCommands::query_mr(Request& request) {
  const MemoryRegion* region = nullptr;
  if (const auto missing = file_.find(request, UVERBS_ATTR_QUERY_MR_HANDLE, region); missing != 0) {
    return missing;
  }
  auto wrong = request.put(UVERBS_ATTR_QUERY_MR_RESP_LKEY, region->key);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_QUERY_MR_RESP_RKEY, region->key);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, region->memory.size);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_QUERY_MR_RESP_IOVA, region->iova);
  return wrong;
}

namespace {

/// Finds the on-demand region for a part to prefetch (get_prefetchable_mr).
Errno find_prefetched(const Objects& objects, const ProtectionDomain& pd, bool writes,
                      const ib_uverbs_sge& piece, const MemoryRegion*& region) {
  region = objects.find_if<MemoryRegion>(
      [&](const MemoryRegion& one) { return one.key != 0 && one.key == piece.lkey; });
  if (region == nullptr || (region->access & kOnDemand) == 0) return ENOENT;
  if (region->pd.get() != &pd) return EPERM;
  return writes && (region->access & kLocalWrite) == 0 ? EPERM : 0;
}

/// The pages come, if they can (pagefault_mr).
Errno prefetch(const UserMemory& memory, const MemoryRegion& region, const ib_uverbs_sge& piece,
               bool writes) {
  const auto offset = piece.addr - region.iova;
  if (offset > region.memory.size || piece.length > region.memory.size - offset) return EFAULT;
  if (piece.length == 0) return EINVAL;
  return pin(memory, region.memory.begin + offset, piece.length, writes);
}

}  // namespace

/// Prefetching (mlx5_ib_advise_mr_prefetch). Without the flush flag Linux leaves the work to a
/// worker, and a page that cannot be faulted in is no error. Here the pages are faulted in
/// immediately.
Errno MemoryRegionCommands::advise_mr(Request& request) {
  constexpr std::size_t kListMax = 4096;
  const auto advice = request.get<std::uint32_t>(UVERBS_ATTR_ADVISE_MR_ADVICE);
  const auto flags = request.get<std::uint32_t>(UVERBS_ATTR_ADVISE_MR_FLAGS);
  const ProtectionDomain* pd = nullptr;
  if (const auto missing = file_.find(request, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd); missing != 0) {
    return missing;
  }
  const bool waits = flags == IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
  if (flags != 0 && !waits) return EINVAL;
  const auto count = request.size(UVERBS_ATTR_ADVISE_MR_SGE_LIST) / sizeof(ib_uverbs_sge);
  if (count == 0 || count > kListMax) return EINVAL;
  if (advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  std::vector<ib_uverbs_sge> list(count);
  if (const auto wrong =
          request.copy_in(UVERBS_ATTR_ADVISE_MR_SGE_LIST, std::as_writable_bytes(std::span(list)));
      wrong != 0) {
    return wrong;
  }
  const bool writes = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const MemoryRegion* region = nullptr;
  if (!waits) {
    for (const auto& piece : list) {
      const auto wrong = find_prefetched(file_.objects, *pd, writes, piece, region);
      if (wrong != 0) return wrong;
    }
  }
  for (const auto& piece : list) {
    if (const auto wrong = find_prefetched(file_.objects, *pd, writes, piece, region); wrong != 0) {
      return wrong;
    }
    const auto wrong = prefetch(file_.memory, *region, piece, writes);
    if (waits && wrong != 0) return wrong;
  }
  return 0;
}

Errno MemoryRegionCommands::destroy_mr(Request& request) {
  return destroy_object<MemoryRegion>(file_.objects, request.number(UVERBS_ATTR_DESTROY_MR_HANDLE));
}

}  // namespace softhca::uverbs
