#include "connectx/function/limit_table.h"

#include <array>

#include "connectx/base/bar_layout.h"
#include "connectx/base/timestamp.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using spec::connectx::atomic_cap;
using spec::connectx::eth_offload_cap;
using spec::connectx::flow_table_nic_cap;
using spec::connectx::flow_table_properties;
using spec::connectx::hca_cap;
using spec::connectx::hca_cap_type;
using spec::connectx::roce_cap;

/// Where a structure stands: in the image of which group, and at which byte of it.
template <class Structure>
struct Place;
template <>
struct Place<hca_cap> {
  static constexpr auto kGroup = hca_cap_type::GENERAL;
  static constexpr std::size_t kOffset = 0;
};
template <>
struct Place<eth_offload_cap> {
  static constexpr auto kGroup = hca_cap_type::ETHERNET_OFFLOADS;
  static constexpr std::size_t kOffset = 0;
};
template <>
struct Place<flow_table_properties> {
  static constexpr auto kGroup = hca_cap_type::FLOW_TABLE_NIC;
  static constexpr std::size_t kOffset =
      flow_table_nic_cap::flow_table_properties_nic_receive.kOffset;
};
template <>
struct Place<roce_cap> {
  static constexpr auto kGroup = hca_cap_type::ROCE;
  static constexpr std::size_t kOffset = 0;
};
template <>
struct Place<atomic_cap> {
  static constexpr auto kGroup = hca_cap_type::ATOMIC;
  static constexpr std::size_t kOffset = 0;
};

template <class Structure, auto Field>
constexpr CapabilityInfo row(std::string_view name, LimitKind kind, std::string_view commands,
                             std::string_view what, std::uint32_t value,
                             std::uint32_t Limits::* limit) {
  return {.group = Place<Structure>::kGroup,
          .name = name,
          .kind = kind,
          .commands = commands,
          .what = what,
          .value = value,
          .limit = limit,
          .write =
              [](std::span<std::byte> image, std::uint32_t written) {
                util::MutableView<Structure>(image.subspan(Place<Structure>::kOffset))
                    .set(Field, written);
              },
          .read = [](std::span<const std::byte> image) -> std::uint32_t {
            return util::View<Structure>(image.subspan(Place<Structure>::kOffset)).get(Field);
          }};
}

constexpr auto kTable = std::to_array<CapabilityInfo>({
#define LIMIT(structure, capability, value, kind, commands, what)                            \
  row<structure, structure::capability>(#capability, LimitKind::kind, commands, what, value, \
                                        &Limits::capability),
#define TOLD(structure, capability, value, why) \
  row<structure, structure::capability>(#capability, LimitKind::kTold, "", why, value, nullptr),
#define HAS(structure, capability, what) \
  row<structure, structure::capability>(#capability, LimitKind::kBit, "", what, 1, nullptr),
#include "connectx/base/limit_list.inc"
});

constexpr std::uint32_t value_of(std::string_view name) {
  for (const auto& info : kTable) {
    if (info.name == name) return info.value;
  }
  return 0;
}

// What is told, and what stands elsewhere.
static_assert(kBarSize == 1u << (20 + value_of("uar_sz")));
static_assert(value_of("rss_ind_tbl_cap") == Limits{}.log_max_rqt_size);

}  // namespace

std::span<const CapabilityInfo> capability_table() { return kTable; }

}  // namespace softhca::connectx
