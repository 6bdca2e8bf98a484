#include "uverbs/devx_memory.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include <bit>
#include <cerrno>
#include <memory>
#include <utility>

#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"
#include "util/bits.h"
#include "uverbs/abi.h"
#include "uverbs/devx_object.h"
#include "uverbs/pinning.h"
#include "uverbs/program_pages.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using CreateUmem = driver::connectx::Request<spec::create_umem_in>;

namespace {

using namespace rules;

constexpr AttributeRule kRegMemory[] = {made(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE),
                                        value_in(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, 8),
                                        value_in(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, 8),
                                        flags_in(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, true),
                                        value_out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, 4),
                                        const_in(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, 8, false)};
constexpr AttributeRule kDeregMemory[] = {object(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE)};

constexpr unsigned kLogPage = 12;
/// On hardware, physically contiguous program memory rarely exceeds a huge page.
constexpr unsigned kLogUmemPageMax = 21;

/// Log2 of the largest allowed page size (`allowed` has a bit for each) to which both begin and
/// size of the memory are aligned. The processor's page size fits any memory. 0: none fits.
unsigned log_page_size(const MemoryRange& memory, std::uint64_t allowed) {
  for (unsigned log = kLogUmemPageMax; log > kLogPage; --log) {
    const auto size = std::uint64_t{1} << log;
    const bool fits = memory.begin % size == 0 && memory.size % size == 0;
    if (fits && (allowed & size) != 0) return log;
  }
  return allowed < kPage ? 0 : kLogPage;
}

}  // namespace

std::span<const Method<DevxMemoryCommands>> DevxMemoryCommands::methods() {
  static constexpr Method<DevxMemoryCommands> kMethods[] = {
      {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, kRegMemory,
       &DevxMemoryCommands::reg_umem},
      {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, kDeregMemory,
       &DevxMemoryCommands::dereg_umem},
  };
  return kMethods;
}

Errno DevxMemoryCommands::reg_umem(Request& request) {
  if (file_.user.uid() == 0) return EINVAL;
  const auto begin = request.get<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
  const auto size = request.get<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
  const auto access = request.get<std::uint32_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS);
  const bool is_written = (access & kLocalWrite) != 0;
  if ((access & ~(kLocalWrite | kRemoteWrite | kRemoteRead | kRelaxedOrdering)) != 0) return EINVAL;
  if ((access & kRemoteWrite) != 0 && !is_written) return EINVAL;
  if (size == 0 || begin + size < begin || begin + size > Device::kProgramMemory) return EINVAL;
  const bool chooses = request.has(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP);
  const auto allowed =
      chooses ? request.get<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP) : UINT64_MAX;
  auto umem = std::make_unique<DevxMemory>(file_.device);
  umem->uid = file_.user.uid();
  umem->memory = {.begin = begin, .size = size};
  const auto log = log_page_size(umem->memory, allowed);
  if (log == 0) return EINVAL;
  if (const auto wrong = umem->locked.take(file_.memory.locked(), begin, size); wrong != 0)
    return wrong;
  if (const auto wrong = pin(file_.memory, begin, size, is_written); wrong != 0) return wrong;
  const auto page = std::uint64_t{1} << log;
  const auto offset = begin % page;
  const auto pages = (offset + size + page - 1) / page;
  using In = spec::create_umem_in;
  CreateUmem create(spec::command_opcode::CREATE_UMEM, pages * spec::mtt_entry::kSize);
  create.set(In::uid, file_.user.uid());
  const auto context = create.sub(In::umem);
  context.set(spec::umem::log_page_size, log - kLogPage);
  context.set(spec::umem::page_offset, static_cast<std::uint32_t>(offset));
  context.set(spec::umem::num_of_mtt, pages);
  auto list = create.all().subspan(In::mtt_offset);
  for (std::uint64_t i = 0; i != pages; ++i, list = list.subspan(spec::mtt_entry::kSize)) {
    const util::MutableView<spec::mtt_entry> entry(list);
    const auto address = Device::bus_address(begin - offset + i * page);
    entry.set(spec::mtt_entry::ptag, util::part_of(address, spec::mtt_entry::ptag));
    entry.set(spec::mtt_entry::rd_en, 1);
    entry.set(spec::mtt_entry::wr_en, is_written);
  }
  const auto out = file_.device.commands().execute<spec::create_umem_out>(create);
  if (!out) return ENOMEM;
  const auto id = umem->id = out->get(spec::create_umem_out::umem_id);
  return Reply(request, file_.objects, std::move(umem))
      .put_handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
      .put(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, id)
      .end();
}

Errno DevxMemoryCommands::dereg_umem(Request& request) {
  return destroy_object<DevxMemory>(file_.objects,
                                    request.number(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE));
}

}  // namespace softhca::uverbs
