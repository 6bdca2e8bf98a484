// The valid entries of key tables, for an inspect tree.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sdxi/inspect.h"
#include "sdxi/memory.h"
#include "util/inspection.h"

namespace softhca::sdxi {

template <class Entry>
void inspect_key(std::string_view name, std::uint64_t number, std::span<const std::byte> bytes,
                 util::InspectNode& list) {
  auto& one = list.child(fmt::format("{} {}", name, number));
  one.add("number", number);
  inspect_fields(util::View<Entry>(bytes), one);
}

/// A table shown beside others: the first valid entries of its first pages, and how many are left
/// out.
template <class Entry>
void inspect_first_keys(const AddressSpace& space, Iova table, std::uint32_t entries,
                        std::string_view name, util::InspectNode& out) {
  constexpr std::uint32_t kPerPage = 4096 / Entry::kSize;
  constexpr std::uint32_t kRead = 4 * kPerPage;
  constexpr std::uint32_t kShown = util::Inspection::kCount;
  auto& list = out.list(fmt::format("{}s", name));
  std::uint32_t valid = 0;
  alignas(8) std::array<std::byte, 4096> page;
  for (std::uint32_t first = 0; first < std::min(entries, kRead); first += kPerPage) {
    if (!space.load_words(table + first * std::uint64_t{Entry::kSize}, page)) {
      inspect_unreadable(fmt::format("{}s_unreadable", name), out);
      break;
    }
    for (std::uint32_t i = 0; i < kPerPage; ++i) {
      const auto bytes = std::span(page).subspan(i * Entry::kSize, Entry::kSize);
      if (util::View<Entry>(bytes).get(Entry::vl) == 0 || ++valid > kShown) continue;
      inspect_key<Entry>(name, first + i, bytes, list);
    }
  }
  if (valid > kShown) out.add(fmt::format("{}s_not_shown", name), valid - kShown);
  if (entries > kRead) out.add(fmt::format("{}s_not_read", name), entries - kRead);
}

/// A table that is a list of its own, shown page by page.
template <class Entry>
void inspect_key_table(const AddressSpace& space, Iova table, const util::InspectList& list,
                       std::string_view name, util::Inspection& out) {
  struct Bytes {
    alignas(8) std::array<std::byte, Entry::kSize> bytes;
    std::uint64_t number;
  };
  out.list(
      list,
      [&](std::uint64_t place) -> std::optional<Bytes> {
        Bytes entry{.bytes = {}, .number = place};
        if (!space.load_words(table + place * Entry::kSize, entry.bytes)) {
          const bool refused = pcie::LocalMemoryOnly::take_refusal();
          out.unreadable(place, refused ? kNotMapped : "unreadable");
          return std::nullopt;
        }
        if (util::View<Entry>(entry.bytes).get(Entry::vl) == 0) return std::nullopt;
        return entry;
      },
      [name](const Bytes& entry, util::InspectNode& node) {
        inspect_key<Entry>(name, entry.number, entry.bytes, node);
      });
}

}  // namespace softhca::sdxi
