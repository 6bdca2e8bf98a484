#include "connectx/function/limit_table.h"

#include <array>
#include <type_traits>

#include "connectx/base/bar_layout.h"
#include "connectx/base/timestamp.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using spec::connectx::atomic_cap;
using spec::connectx::device_event_cap;
using spec::connectx::eth_offload_cap;
using spec::connectx::flow_table_nic_cap;
using spec::connectx::flow_table_properties;
using spec::connectx::hca_cap;
using spec::connectx::hca_cap_type;
using spec::connectx::odp_cap;
using spec::connectx::odp_per_transport_service_cap;
using spec::connectx::odp_scheme_cap;
using spec::connectx::roce_cap;

/// A group, and a byte offset in its image.
template <hca_cap_type Group, std::size_t Offset = 0>
struct At {
  static constexpr auto kGroup = Group;
  static constexpr std::size_t kOffset = Offset;
};
/// The location of a structure.
template <class Structure>
struct Place;
template <>
struct Place<hca_cap> : At<hca_cap_type::GENERAL> {};
template <>
struct Place<eth_offload_cap> : At<hca_cap_type::ETHERNET_OFFLOADS> {};
template <>
struct Place<flow_table_nic_cap> : At<hca_cap_type::FLOW_TABLE_NIC> {};
template <>
struct Place<flow_table_properties>
    : At<hca_cap_type::FLOW_TABLE_NIC,
         flow_table_nic_cap::flow_table_properties_nic_receive.kOffset> {};
template <>
struct Place<roce_cap> : At<hca_cap_type::ROCE> {};
template <>
struct Place<device_event_cap> : At<hca_cap_type::DEVICE_EVENT> {};
template <>
struct Place<atomic_cap> : At<hca_cap_type::ATOMIC> {};

/// The same structure for each transport service of on-demand paging.
template <std::size_t Offset>
struct OdpCaps : odp_per_transport_service_cap {
  static constexpr std::size_t kPlace = odp_cap::transport_page_fault_scheme_cap.kOffset + Offset;
};
using rc_odp_caps = OdpCaps<odp_scheme_cap::rc_odp_caps.kOffset>;
using ud_odp_caps = OdpCaps<odp_scheme_cap::ud_odp_caps.kOffset>;
using xrc_odp_caps = OdpCaps<odp_scheme_cap::xrc_odp_caps.kOffset>;
using dc_odp_caps = OdpCaps<odp_scheme_cap::dc_odp_caps.kOffset>;
template <std::size_t Offset>
struct Place<OdpCaps<Offset>> : At<hca_cap_type::ODP, OdpCaps<Offset>::kPlace> {};
template <class Structure>
constexpr bool kIsOdp = std::is_base_of_v<odp_per_transport_service_cap, Structure>;
template <class Structure>
using LayoutOf = std::conditional_t<kIsOdp<Structure>, odp_per_transport_service_cap, Structure>;

/// The name of a capability. It has the structure's name as a prefix unless the group implies that.
template <class Structure>
constexpr std::string_view name_of(std::string_view alone, std::string_view with_structure) {
  return kIsOdp<Structure> ? with_structure : alone;
}

template <class Structure, auto Field>
constexpr CapabilityInfo row(std::string_view name, LimitKind kind, std::string_view commands,
                             std::string_view what, std::uint32_t value,
                             std::uint32_t Limits::* limit) {
  return {
      .group = Place<Structure>::kGroup,
      .name = name,
      .kind = kind,
      .commands = commands,
      .what = what,
      .value = value,
      .limit = limit,
      .write =
          [](std::span<std::byte> image, std::uint32_t written) {
            util::MutableView<LayoutOf<Structure>>(image.subspan(Place<Structure>::kOffset))
                .set(Field, written);
          },
      .read = [](std::span<const std::byte> image) -> std::uint32_t {
        return util::View<LayoutOf<Structure>>(image.subspan(Place<Structure>::kOffset)).get(Field);
      }};
}

constexpr auto kCapabilityTable = std::to_array<CapabilityInfo>({
#define LIMIT(structure, capability, value, kind, commands, what)                            \
  row<structure, structure::capability>(#capability, LimitKind::kind, commands, what, value, \
                                        &Limits::capability),
#define TOLD(structure, capability, value, why) \
  row<structure, structure::capability>(#capability, LimitKind::kTold, "", why, value, nullptr),
#define HAS(structure, capability, what)                                                         \
  row<structure, structure::capability>(                                                         \
      name_of<structure>(#capability, #structure "." #capability), LimitKind::kBit, "", what, 1, \
      nullptr),
#include "connectx/base/limit_list.inc"
});

constexpr std::uint32_t value_of(std::string_view name) {
  for (const auto& info : kCapabilityTable) {
    if (info.name == name) return info.value;
  }
  return 0;
}

// Values that are also defined elsewhere.
static_assert(kBarSize == 1u << (20 + value_of("uar_sz")));
static_assert(value_of("rss_ind_tbl_cap") == Limits{}.log_max_rqt_size);

}  // namespace

std::span<const CapabilityInfo> capability_table() { return kCapabilityTable; }

}  // namespace softhca::connectx
