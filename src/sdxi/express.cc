#include "sdxi/express.h"

#include <algorithm>
#include <optional>

#include "sdxi/copy_bytes.h"
#include "sdxi/operation.h"

namespace softhca::sdxi {
namespace {

using pcie::DmaAccess;

constexpr std::size_t kFooterAt = spec::dsc_generic::footer.kOffset;
/// Ring entries that are prefetched ahead.
constexpr std::uint64_t kAhead = 6;

/// Copy of a descriptor. Only the copy is read, because the producer may be hostile.
using Taken = std::array<std::byte, spec::kDescriptorSize>;

std::uint64_t load(const std::byte* at, int order) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), order);
}

/// SDXI 5.3 step 8.
void clear_valid(std::byte* slot, Taken& taken) {
  util::MutableView<spec::dsc_header>(taken).set(spec::dsc_header::vl, 0);
  store_cleared_valid(slot, taken[0]);
}

/// Finds the completion block: null if the descriptor has none. False if it cannot be found here.
inline bool find_block(const Context& context, ExpressTurn& turn,
                       util::View<spec::dsc_generic> descriptor, std::uint64_t*& signal) {
  const auto footer = descriptor.get(spec::dsc_generic::footer);
  signal = nullptr;
  if (footer.get(spec::dsc_footer::np) != 0) return true;
  const auto at = spec::address(footer, spec::dsc_footer::csb_ptr);
  auto* place = turn.blocks.find(at, sizeof *signal);
  if (place == nullptr) [[unlikely]] {
    turn.blocks = context.space.window(at, DmaAccess::kReadWrite);
    place = turn.blocks.find(at, sizeof *signal);
  }
  signal = reinterpret_cast<std::uint64_t*>(place);
  return place != nullptr && reinterpret_cast<std::uintptr_t>(place) % sizeof *signal == 0;
}

}  // namespace

/// Addresses and size, in bytes, of a DSC_DMAB_COPY.
struct Express::Copy {
  std::uint64_t size;
  const std::byte* from;
  std::byte* to;
};

void Express::prepare(ExpressTurn& turn, const HeaderRules& rules,
                      const ContextEntry& context) const {
  turn.nop = header_pattern(rules, spec::dma_base_subtype::DSC_DMAB_NOP);
  turn.copy = header_pattern(rules, spec::dma_base_subtype::DSC_DMAB_COPY);
  turn.max_buffer = max_buffer_bytes(parts_.registers, context);
  turn.signals = parts_.completions.rules();
  turn.forget();
}

/// Slow path of a lookup. The control thread, too, uses only local memory here and logs nothing:
/// RingProcessor repeats what fails.
[[gnu::noinline]] std::byte* Express::look_up(const Context& context, ExpressTurn::Reach& reach,
                                              std::uint16_t akey, Iova at, std::uint64_t size,
                                              DmaAccess access) const {
  if (reach.akey != akey) {
    std::optional<pcie::LocalMemoryOnly> local;
    if (!pcie::LocalMemoryOnly::active()) local.emplace();
    const auto space = parts_.keys.memory(context.entry, akey, 0);
    if (local) (void)pcie::LocalMemoryOnly::take_refusal();
    if (!space) return nullptr;
    reach.akey = akey;
    reach.space = *space;
  }
  reach.window = reach.space.window(at, access);
  return reach.window.find(at, size);
}

/// Checks all that execute_copy() checks, and that each buffer is one piece of local memory.
inline bool Express::resolve(const Context& context, ExpressTurn& turn, std::int64_t deficit,
                             util::View<spec::dsc_generic> descriptor, Copy& copy) const {
  using dsc = spec::dsc_dmab_copy;
  const util::View<dsc> view(descriptor.bytes());
  constexpr auto kReserved = static_cast<std::uint32_t>(spec::coherency::RESERVED);
  copy.size = std::uint64_t{view.get(dsc::size)} + 1;
  if (view.get(dsc::coh_src) == kReserved || view.get(dsc::coh_dst) == kReserved ||
      copy.size > turn.max_buffer ||
      static_cast<std::int64_t>(copy.size) > std::max(deficit, turn.advance)) [[unlikely]] {
    return false;
  }
  const auto find = [&](ExpressTurn::Reaches& reaches, std::uint32_t akey, Iova at,
                        DmaAccess access) {
    auto& reach = reaches[akey % reaches.size()];
    if (reach.akey == akey) [[likely]] {
      if (auto* place = reach.window.find(at, copy.size)) [[likely]]
        return place;
    }
    return look_up(context, reach, static_cast<std::uint16_t>(akey), at, copy.size, access);
  };
  copy.from = find(turn.sources, view.get(dsc::akey0), view.get(dsc::addr0), DmaAccess::kRead);
  if (copy.from == nullptr) return false;
  copy.to = find(turn.targets, view.get(dsc::akey1), view.get(dsc::addr1), DmaAccess::kWrite);
  return copy.to != nullptr;
}

bool Express::run(Context& context, ExpressTurn& turn) const {
  const auto first = context.read_index % context.entry.ds_ring_sz;
  const auto unreported = context.read_index - context.read_index_written;
  const auto count = std::min({context.write_index - context.read_index,
                               context.entry.ds_ring_sz - first, kTogether - unreported});
  auto* const begin = context.ring + first * spec::kDescriptorSize;
  auto* const end = begin + count * spec::kDescriptorSize;
  auto* slot = begin;
  const auto cost = std::int64_t{parts_.options.descriptor_bytes};
  auto deficit = context.deficit;
  alignas(8) Taken taken;
  const util::View<spec::dsc_generic> descriptor(taken);
  // Prefetch for writing, because vl will be cleared: one transfer from the producer's cache serves
  // both.
  for (auto* line = slot; line < std::min(end, begin + kAhead * spec::kDescriptorSize);
       line += spec::kDescriptorSize) {
    __builtin_prefetch(line, 1);
  }
  // RingProcessor injects the faults.
  for (; slot != end && deficit > 0 && !parts_.faults.armed(); slot += spec::kDescriptorSize) {
    // SDXI 5.3 step 5: the bytes after the valid bit belong to the producer until it is set.
    util::store_le64(taken.data(), load(slot, __ATOMIC_ACQUIRE));
    const auto header = util::load_le32(taken.data());
    std::uint64_t* signal;
    const bool simple = descriptor.get(spec::dsc_generic::header).get(spec::dsc_header::csr) != 0;
    if (turn.nop.matches(header)) {
      util::store_le64(&taken[kFooterAt], load(slot + kFooterAt, __ATOMIC_RELAXED));
      if (!find_block(context, turn, descriptor, signal)) break;
      clear_valid(slot, taken);
      deficit -= cost;
    } else if (turn.copy.matches(header)) {
      load_descriptor_body(slot, taken);
      Copy copy;
      if (!resolve(context, turn, deficit - cost, descriptor, copy)) break;
      if (!find_block(context, turn, descriptor, signal)) break;
      clear_valid(slot, taken);
      copy_bytes(copy.to, copy.from, copy.size, copy.size);
      deficit -= cost + static_cast<std::int64_t>(copy.size);
    } else {
      break;
    }
    if (signal != nullptr) turn.signals.apply(*signal, simple);
    if (slot + kAhead * spec::kDescriptorSize < end)
      __builtin_prefetch(slot + kAhead * spec::kDescriptorSize, 1);
  }
  const auto done = static_cast<std::uint64_t>(slot - begin) / spec::kDescriptorSize;
  context.read_index += done;
  context.descriptors += done;
  context.deficit = deficit;
  return slot == end;
}

}  // namespace softhca::sdxi
