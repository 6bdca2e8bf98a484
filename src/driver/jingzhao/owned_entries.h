// Entries of CQs and EQs, whose last bit names the owner (JingZhao 3.3.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "spec/jingzhao/cqe.h"
#include "util/field.h"

namespace softhca::driver::jingzhao {

namespace owned_entries {
using Cqe = softhca::spec::jingzhao::cqe;
inline constexpr std::size_t kLast = Cqe::owner.kOffset;
}  // namespace owned_entries

/// True if the device has written the entry completely.
inline bool is_ours(std::span<const std::byte> entry) {
  using owned_entries::Cqe;
  const auto raw =
      __atomic_load_n(reinterpret_cast<const std::uint32_t*>(entry.data() + owned_entries::kLast),
                      __ATOMIC_ACQUIRE);
  std::byte copy[Cqe::kSize] = {};
  std::memcpy(copy + owned_entries::kLast, &raw, sizeof raw);
  return util::View<Cqe>(copy).get(Cqe::owner) == 0;
}

/// Returns the entry to the device, after all reads of it.
inline void give_back(std::span<std::byte> entry) {
  using owned_entries::Cqe;
  std::byte given[Cqe::kSize] = {};
  util::MutableView<Cqe>(given).set(Cqe::owner, 1);
  std::uint32_t raw;
  std::memcpy(&raw, given + owned_entries::kLast, sizeof raw);
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(entry.data() + owned_entries::kLast), raw,
                   __ATOMIC_RELEASE);
}

inline void give_all(std::span<std::byte> ring) {
  using owned_entries::Cqe;
  for (; ring.size() >= Cqe::kSize; ring = ring.subspan(Cqe::kSize)) {
    give_back(ring.first(Cqe::kSize));
  }
}

}  // namespace softhca::driver::jingzhao
