#include "connectx/function/capabilities.h"

#include <algorithm>
#include <cassert>

#include "connectx/function/limit_table.h"

namespace softhca::connectx {

namespace {

using Cap = spec::connectx::hca_cap;
using AtomicCap = spec::connectx::atomic_cap;
using RoceCap = spec::connectx::roce_cap;
using FlowCap = spec::connectx::flow_table_nic_cap;
using FlowProperties = spec::connectx::flow_table_properties;
using FlowFields = spec::connectx::flow_table_fields_supported;

/// Sets the bits of the packet fields that flows can match on.
void fill_match_fields(util::MutableView<FlowFields> fields) {
#define OUTER(capability, field) fields.set(FlowFields::capability, 1);
#define OUTER_BYTES(capability, field) OUTER(capability, field)
#define MISC(capability, field) OUTER(capability, field)
#include "connectx/base/match_field_list.inc"
}

constexpr std::string_view kSetSection = "PRM 12.3.4";

/// Copies the named fields of `image` to `current`. If one is above `maximum`, returns false and
/// changes nothing.
template <class Layout, class... Fields>
bool take(std::span<const std::byte> image, std::span<const std::byte> maximum,
          std::span<std::byte> current, Fields... fields) {
  const util::View<Layout> wanted(image);
  const util::View<Layout> limit(maximum);
  if (((wanted.get(fields) > limit.get(fields)) || ...)) return false;
  const util::MutableView<Layout> to(current);
  (to.set(fields, wanted.get(fields)), ...);
  return true;
}

bool take_writable(Capabilities::Type type, std::span<const std::byte> image,
                   std::span<const std::byte> maximum, std::span<std::byte> current) {
  using Type = Capabilities::Type;
  switch (type) {
    case Type::GENERAL:
      return take<Cap>(image, maximum, current, Cap::pkey_table_size, Cap::log_max_qp,
                       Cap::log_max_sq, Cap::cmdif_checksum, Cap::cache_line_128byte,
                       Cap::log_uar_page_sz);
    case Type::ATOMIC:
      return take<AtomicCap>(image, maximum, current, AtomicCap::atomic_req_8B_endianness_mode);
    case Type::ROCE:
      return take<RoceCap>(image, maximum, current, RoceCap::sw_r_roce_src_udp_port);
    default:
      return true;  // nothing in this group is writable
  }
}

template <class Groups>
auto* find_group(Groups& groups, Capabilities::Type type) {
  const auto at = std::ranges::find_if(groups, [&](const auto& g) { return g.type == type; });
  return at == groups.end() ? nullptr : &*at;
}

}  // namespace

Capabilities::Capabilities(const Limits& limits, const Model& model) : maximum_(limits) {
  constexpr std::array kTypes{Type::GENERAL,     Type::ETHERNET_OFFLOADS, Type::ATOMIC,
                              Type::ROCE,        Type::FLOW_TABLE_NIC,    Type::ODP,
                              Type::DEVICE_EVENT};
  static_assert(kTypes.size() == std::tuple_size_v<decltype(groups_)>);
  for (std::size_t i = 0; i < kTypes.size(); ++i) groups_[i].type = kTypes[i];
  for (const auto& info : capability_table()) {
    const auto value = info.limit == nullptr ? info.value : limits.*info.limit;
    // The table's value is the device's maximum, or its minimum for kLeast.
    assert(info.kind == LimitKind::kLeast ? value >= info.value : value <= info.value);
    info.write(find_group(groups_, info.group)->maximum, value);
  }
  for (const auto type : model.without_groups) find_group(groups_, type)->present = false;
  for (const auto& [name, value] : model.capabilities) {
    const auto& info = *std::ranges::find(capability_table(), name, &CapabilityInfo::name);
    assert(info.limit == nullptr && "limits are told by Limits");
    info.write(find_group(groups_, info.group)->maximum, value);
  }
  const util::MutableView<FlowCap> flow(find_group(groups_, Type::FLOW_TABLE_NIC)->maximum);
  const auto receive = flow.sub(FlowCap::flow_table_properties_nic_receive);
  fill_match_fields(receive.sub(FlowProperties::ft_field_support));
  fill_match_fields(receive.sub(FlowProperties::ft_field_bitmask_support));
  // PRM 3.5: "Sniffer Flow Tables must be handled as any other NIC Flow Table".
  const auto same = [&](util::MutableView<FlowProperties> sniffer) {
    std::ranges::copy(receive.bytes(), sniffer.bytes().begin());
  };
  same(flow.sub(FlowCap::flow_table_properties_nic_receive_sniffer));
  same(flow.sub(FlowCap::flow_table_properties_nic_transmit_sniffer));
  // PRM 7.11.4.2: transmit tables have no tags, and a frame is sent only once.
  const auto transmit = flow.sub(FlowCap::flow_table_properties_nic_transmit);
  same(transmit);
  transmit.set(FlowProperties::flow_tag, 0);
  transmit.set(FlowProperties::flow_counter, 0);  // PRM 7.11.3.5
  transmit.set(FlowProperties::log_max_destination, 0);
  reset();
}

void Capabilities::reset() {
  for (auto& group : groups_) group.current = group.maximum;
  current_ = maximum_;
  // Off until a driver enables it.
  util::MutableView<AtomicCap>(groups_[2].current).set(AtomicCap::atomic_req_8B_endianness_mode, 0);
  util::MutableView<RoceCap>(groups_[3].current).set(RoceCap::sw_r_roce_src_udp_port, 0);
}

const Capabilities::Group* Capabilities::find(Type type) const {
  const auto* group = find_group(groups_, type);
  return group != nullptr && group->present ? group : nullptr;
}

std::span<const std::byte> Capabilities::maximum(Type type) const {
  const auto* group = find(type);
  return group == nullptr ? std::span<const std::byte>() : group->maximum;
}

std::span<const std::byte> Capabilities::current(Type type) const {
  const auto* group = find(type);
  return group == nullptr ? std::span<const std::byte>() : group->current;
}

CommandResult Capabilities::set(Type type, std::span<const std::byte> image) {
  auto* group = find_group(groups_, type);
  if (group == nullptr || !group->present) {
    return refuse(Status::BAD_OP, kSetSection, "no such group of capabilities");
  }
  auto wanted = group->current;
  std::ranges::copy(image.first(std::min(image.size(), wanted.size())), wanted.begin());
  if (!take_writable(type, wanted, group->maximum, group->current)) {
    return refuse(Status::EXCEED_LIM, kSetSection, "a capability above the device's maximum");
  }
  for (const auto& info : capability_table()) {
    if (info.group == type && info.limit != nullptr) {
      current_.*info.limit = info.read(group->current);
    }
  }
  return {};
}

}  // namespace softhca::connectx
