#include "driver/connectx/memory_key.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "driver/connectx/queue_sizes.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/mkey_number.h"
#include "util/bits.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::create_mkey_in;
using spec::create_mkey_out;
using spec::destroy_mkey_in;
using spec::mkey_access_mode;
using spec::mkey_context;
using spec::mkey_index_of;
using spec::mkey_of;
using spec::mtt_entry;

namespace {

constexpr unsigned kLogSmallPage = 12;
constexpr unsigned kLogLargePage = 21;
constexpr std::size_t kOctword = 16;

/// The list of a key's pages: bus address of the first, number and size.
struct PageList {
  std::uint64_t first;
  std::uint64_t count;
  unsigned log_size;
};

/// Uses large pages if the mapping has the same offset in them for program and device, and is long
/// enough to shorten the list. The first and the last page may extend beyond the memory; the key
/// does not.
PageList page_list(const DmaRegion& pages, std::span<const std::byte> memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto mapped_at = reinterpret_cast<std::uintptr_t>(pages.bytes.data());
  const auto large = std::uint64_t{1} << kLogLargePage;
  const bool same_place = (mapped_at ^ pages.iova) % large == 0;
  const auto log_size = same_place && memory.size() >= large ? kLogLargePage : kLogSmallPage;
  const auto size = std::uint64_t{1} << log_size;
  const auto skip = address % size;
  return {.first = pages.iova + (address - mapped_at) - skip,
          .count = (skip + memory.size() + size - 1) / size,
          .log_size = log_size};
}

void describe_access(util::MutableView<mkey_context> context, const ProtectionDomain& pd,
                     const MemoryAccess& access) {
  context.set(mkey_context::lr, 1);
  context.set(mkey_context::lw, access.local_write);
  context.set(mkey_context::rr, access.remote_read);
  context.set(mkey_context::rw, access.remote_write);
  context.set(mkey_context::a, access.remote_atomic);
  context.set(mkey_context::pd, pd.pd());
}

}  // namespace

util::Result<std::unique_ptr<MemoryKey>> MemoryKey::register_memory(ProtectionDomain& pd,
                                                                    std::span<std::byte> memory,
                                                                    MemoryAccess access) {
  auto& hca = pd.hca();
  std::unique_ptr<MemoryKey> key(new MemoryKey(hca));
  auto mapping = DmaMapping::map(hca.host(), memory);
  if (!mapping) return tl::unexpected(mapping.error());
  key->mapping_ = std::move(*mapping);
  const auto pages = page_list(key->mapping_.pages(), memory);

  // The length is given in octwords of two entries.
  const auto octwords = (pages.count * mtt_entry::kSize + kOctword - 1) / kOctword;
  Request<create_mkey_in> in(command_opcode::CREATE_MKEY, octwords * kOctword);
  in.set(create_mkey_in::translations_octword_actual_size, static_cast<std::uint32_t>(octwords));
  const auto context = in.sub(create_mkey_in::mkey_context);
  context.set(mkey_context::access_mode, static_cast<std::uint32_t>(mkey_access_mode::MTT));
  describe_access(context, pd, access);
  context.set(mkey_context::start_addr, reinterpret_cast<std::uintptr_t>(memory.data()));
  context.set(mkey_context::len, memory.size());
  context.set(mkey_context::translations_octword_size, static_cast<std::uint32_t>(octwords));
  context.set(mkey_context::log_page_size, pages.log_size);
  auto list = in.all().subspan(create_mkey_in::klm_pas_mtt_offset);
  for (std::uint64_t i = 0; i < pages.count; ++i, list = list.subspan(mtt_entry::kSize)) {
    const auto page = pages.first + (i << pages.log_size);
    util::MutableView<mtt_entry>(list).set(mtt_entry::ptag, util::part_of(page, mtt_entry::ptag));
  }
  if (auto done = key->create_on_device(in); !done) return tl::unexpected(done.error());
  return key;
}

util::Result<std::unique_ptr<MemoryKey>> MemoryKey::all_dma_memory(ProtectionDomain& pd,
                                                                   MemoryAccess access) {
  std::unique_ptr<MemoryKey> key(new MemoryKey(pd.hca()));
  Request<create_mkey_in> in(command_opcode::CREATE_MKEY);
  const auto context = in.sub(create_mkey_in::mkey_context);
  context.set(mkey_context::access_mode, static_cast<std::uint32_t>(mkey_access_mode::PA));
  context.set(mkey_context::length64, 1);
  describe_access(context, pd, access);
  if (auto done = key->create_on_device(in); !done) return tl::unexpected(done.error());
  return key;
}

template <class Input>
util::Result<void> MemoryKey::create_on_device(Input& in) {
  const auto context = in.sub(create_mkey_in::mkey_context);
  const auto variant = hca_.next_key_variant();
  context.set(mkey_context::qpn, kAnyQp);
  context.set(mkey_context::mkey, variant);
  const auto out = hca_.commands().template execute<create_mkey_out>(in);
  if (!out) return tl::unexpected(out.error());
  key_ = mkey_of(out->get(create_mkey_out::mkey_index), variant);
  exists_ = true;
  return {};
}

MemoryKey::~MemoryKey() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "MKey {:#x}: {}", key_, done.error().message);
  }
}

util::Result<void> MemoryKey::destroy() {
  if (!std::exchange(exists_, false)) return {};
  Request<destroy_mkey_in> in(command_opcode::DESTROY_MKEY);
  in.set(destroy_mkey_in::mkey_index, mkey_index_of(key_));
  auto done = hca_.commands().run(in);
  mapping_ = DmaMapping();
  return done;
}

}  // namespace softhca::driver::connectx
