// MAP_ICM, UNMAP_ICM (JingZhao 3.2.2).
#include <algorithm>
#include <utility>
#include <vector>

#include "jingzhao/device.h"
#include "util/bits.h"

namespace softhca::jingzhao {

using spec::jingzhao::icm_chunk;
using spec::jingzhao::icm_chunk_group;

namespace {

/// @pre op_modifier is one of the two groups, as command_list.inc ensures
IcmGroup group_of(const Command& command) { return IcmGroup(command.op_modifier); }

/// "The lower-numbered entry is in the higher half" of each group.
util::View<icm_chunk> entry(std::span<const std::byte> mailbox, std::uint32_t number) {
  const util::View<icm_chunk_group> group(mailbox.subspan(number / 2 * icm_chunk_group::kSize));
  return number % 2 == 0 ? group.get(icm_chunk_group::even) : group.get(icm_chunk_group::odd);
}

struct Chunk {
  std::uint64_t virt;
  pcie::Iova bus;
  std::uint64_t pages;

  Icm::Range range() const { return {.begin = virt, .end = virt + pages * Icm::kPage}; }
};

Chunk chunk_of(util::View<icm_chunk> view) {
  return {.virt = view.get(icm_chunk::virt),
          .bus = util::in_place(icm_chunk::page, view.get(icm_chunk::page)),
          .pages = view.get(icm_chunk::page_num)};
}

bool wraps(std::uint64_t start, std::uint64_t pages) {
  return pages > (UINT64_MAX - start) / Icm::kPage;
}

/// Checks that the ICM has room for all chunks of the command.
CommandResult check_room(Device& device, const Icm& icm, const Command& command) {
  constexpr std::int64_t kLookWork = 10, kTrialWork = 300;
  device.charge(kLookWork * Icm::kChunksMax + kTrialWork * command.in_modifier);
  std::vector<Icm::Range> ranges;
  for (std::uint32_t i = 0; i != command.in_modifier; ++i) {
    ranges.push_back(chunk_of(entry(command.in, i)).range());
  }
  if (icm.chunks_after(ranges) <= Icm::kChunksMax) return {};
  return refuse(Status::BAD_PARAM, "3.2.2.1",
                "the ICM would be in more chunks than the device keeps");
}

/// Charges a command for the chunks that it removes or replaces. `most`: how many there would be
/// otherwise.
void charge_chunks(Device& device, const Icm& icm, std::size_t most) {
  const auto gone = most - std::min(most, icm.chunks());
  device.charge(static_cast<std::int64_t>(gone) * Icm::kChunkWork);
}

}  // namespace

CommandResult map_icm(Device& device, const Command& command) {
  const auto group = group_of(command);
  for (std::uint32_t i = 0; i != command.in_modifier; ++i) {
    const auto chunk = chunk_of(entry(command.in, i));
    if (chunk.virt % Icm::kPage != 0 || chunk.pages == 0 || wraps(chunk.virt, chunk.pages) ||
        wraps(chunk.bus, chunk.pages)) {
      return refuse(Status::BAD_PARAM, "3.2.2.1",
                    "a chunk is empty, not aligned to pages, or wraps around");
    }
  }
  auto& icm = device.icm(group);
  // A chunk that replaces the middle of another splits it: three chunks instead of one.
  if (icm.chunks() + 2 * std::size_t{command.in_modifier} > Icm::kChunksMax) {
    if (auto fits = check_room(device, icm, command); !fits) return fits;
  }
  const auto most = icm.chunks() + command.in_modifier;
  std::vector<Icm::Range> replaced;
  for (std::uint32_t i = 0; i != command.in_modifier; ++i) {
    const auto chunk = chunk_of(entry(command.in, i));
    if (icm.overlaps(chunk.virt, chunk.pages)) replaced.push_back(chunk.range());
    icm.map(chunk.virt, chunk.bus, chunk.pages);
  }
  charge_chunks(device, icm, most);
  // All together: each call looks at all entries on chip.
  if (!replaced.empty()) device.forget_icm(group, Icm::merge(std::move(replaced)));
  return {};
}

CommandResult unmap_icm(Device& device, const Command& command) {
  const auto group = group_of(command);
  const auto virt = command.in_param;
  const std::uint64_t pages = command.in_modifier;
  if (virt % Icm::kPage != 0 || wraps(virt, pages)) {
    return refuse(Status::BAD_PARAM, "3.2.2.2", "the address is not aligned to pages, or wraps");
  }
  auto& icm = device.icm(group);
  if (icm.chunks() >= Icm::kChunksMax && icm.splits(virt, pages)) {
    return refuse(Status::BAD_PARAM, "3.2.2.2",
                  "the ICM would be in more chunks than the device keeps");
  }
  const auto most = icm.chunks();
  icm.unmap(virt, pages);
  charge_chunks(device, icm, most);
  const Icm::Range range{.begin = virt, .end = virt + pages * Icm::kPage};
  device.forget_icm(group, {&range, 1});
  if (group == IcmGroup::QUEUE_CONTEXTS) device.lose_contexts(virt, pages * Icm::kPage);
  return {};
}

}  // namespace softhca::jingzhao
