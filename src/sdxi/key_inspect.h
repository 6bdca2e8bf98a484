// The valid entries of a key table, for an inspect tree.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "sdxi/inspect.h"
#include "sdxi/memory.h"

namespace softhca::sdxi {

/// Reads the table in pages. `out` becomes a list of at most `shown` valid entries; what is left
/// out is said.
template <class Entry>
void inspect_keys(const AddressSpace& space, Iova table, std::uint32_t entries,
                  std::string_view name, util::InspectNode& out) {
  constexpr std::uint32_t kPerPage = 4096 / Entry::kSize;
  constexpr std::uint32_t kRead = 16 * kPerPage;
  constexpr std::uint32_t kShown = 64;
  auto& list = out.list(fmt::format("{}s", name));
  std::uint32_t valid = 0;
  alignas(8) std::array<std::byte, 4096> page;
  for (std::uint32_t first = 0; first < std::min(entries, kRead); first += kPerPage) {
    if (!space.load_words(table + first * std::uint64_t{Entry::kSize}, page)) {
      out.add(fmt::format("{}s_unreadable_from", name), first);
      break;
    }
    for (std::uint32_t i = 0; i < kPerPage; ++i) {
      const util::View<Entry> entry{std::span(page).subspan(i * Entry::kSize, Entry::kSize)};
      if (entry.get(Entry::vl) == 0 || ++valid > kShown) continue;
      auto& one = list.child(fmt::format("{} {}", name, first + i));
      one.add("number", first + i);
      inspect_fields(entry, one);
    }
  }
  if (valid > kShown) out.add(fmt::format("{}s_not_shown", name), valid - kShown);
  if (entries > kRead) out.add(fmt::format("{}s_not_read", name), entries - kRead);
}

}  // namespace softhca::sdxi
