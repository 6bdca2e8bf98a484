#include "subnet/administration.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "subnet/numbers.h"
#include "util/endian.h"

namespace softhca::subnet {

using spec::infiniband::kDefaultPkey;
using spec::infiniband::kFirstMulticastLid;
using spec::infiniband::sa_attribute;
using spec::infiniband::sm_attribute;
using wire::Gid;

namespace {

/// Bits of a component mask (IBTA 15.2.5.16, 15.2.5.17): one for each field of a record, in order.
namespace path_component {
constexpr unsigned kDgid = 2, kSgid = 3, kDlid = 4, kSlid = 5;
}
namespace member_component {
constexpr unsigned kMgid = 0, kPortGid = 1, kQkey = 2, kTclass = 6, kPkey = 7, kSl = 12,
                   kFlowLabel = 13, kJoinState = 16;
}
constexpr unsigned kLidComponent = 0;  // in NodeRecord and PortInfoRecord

constexpr std::uint32_t kExactly = 2;
constexpr std::uint32_t kLife = 18;     // 4.096 us * 2^n
constexpr std::uint32_t kReceives = 3;  // join states that receive packets: full and non-member
constexpr std::uint32_t kFullMember = 1;
constexpr std::uint32_t kResponseTime = 18;

/// Work (util::WorkBudget) of each MGID that is tried for a new group: it may be taken.
constexpr std::int64_t kNameWork = 100;

/// The broadcast group of IPoIB (RFC 4391 4), which always exists.
constexpr Gid kIpoibBroadcast{{std::byte{0xFF}, std::byte{0x12}, std::byte{0x40}, std::byte{0x1B},
                               std::byte{0xFF}, std::byte{0xFF}, std::byte{}, std::byte{},
                               std::byte{}, std::byte{}, std::byte{}, std::byte{}, std::byte{0xFF},
                               std::byte{0xFF}, std::byte{0xFF}, std::byte{0xFF}}};
constexpr std::uint32_t kIpoibQkey = 0x0B1B;

Gid gid_of(const Manager::Node& node) {
  Gid gid;
  util::store_be64(gid.bytes.data(), kDefaultPrefix);
  util::store_be64(gid.bytes.data() + 8, node.port_guid);
  return gid;
}

/// MGID for a group created without one: ff12:a01b:ffff:<...>:<LID>.
Gid gid_for(Lid lid, std::uint32_t variant) {
  auto gid = kIpoibBroadcast;
  gid.bytes[2] = std::byte{0xA0};
  std::fill(gid.bytes.begin() + 6, gid.bytes.begin() + 10, std::byte{});
  util::store_be32(gid.bytes.data() + 10, variant);
  util::store_be16(gid.bytes.data() + 14, lid.value());
  return gid;
}

}  // namespace

Administration::Administration(Manager& manager) : manager_(manager) {
  util::Struct<Record> record;
  record.set(Record::q_key, kIpoibQkey);
  record.set(Record::p_key, kDefaultPkey);
  create(kIpoibBroadcast, record)->second.for_ever = true;
}

const Manager::Node* Administration::find(std::span<const std::byte, Gid::kSize> gid) const {
  if (util::load_be64(gid.data()) != kDefaultPrefix) return nullptr;
  return manager_.find(util::load_be64(gid.data() + 8));
}

bool Administration::answer(Mad& mad, Lid source) {
  const util::MutableView<SaMad> sa(mad);
  if (MadClass(sa.get(SaMad::mgmt_class)) != MadClass::SUBN_ADMINISTRATION) return false;
  const auto method = Method(sa.get(SaMad::method));
  // Drops responses, and methods that only a manager sends.
  if (method != Method::GET && method != Method::SET && method != Method::DELETE) return false;
  auto status = MadStatus::UNSUPPORTED_VERSION;
  if (sa.get(SaMad::base_version) == 1 && sa.get(SaMad::class_version) == 2) {
    status = dispatch({.method = method,
                       .components = sa.get(SaMad::component_mask),
                       .source = source,
                       .data = sa.sub(SaMad::data)},
                      static_cast<std::uint16_t>(sa.get(SaMad::attribute_id)));
  }
  const auto response = method == Method::DELETE ? Method::DELETE_RESP : Method::GET_RESP;
  sa.set(SaMad::method, static_cast<std::uint32_t>(response));
  sa.set(SaMad::status, static_cast<std::uint32_t>(status));
  ++(status == MadStatus::OK ? counters_.answered : counters_.refused);
  return true;
}

MadStatus Administration::dispatch(const Request& request, std::uint16_t attribute) {
  const bool get = request.method == Method::GET;
  switch (sa_attribute(attribute)) {
    case sa_attribute::CLASS_PORT_INFO:
      return get ? class_port_info(request) : MadStatus::UNSUPPORTED_ATTRIBUTE;
    case sa_attribute::NODE_RECORD:
      return get ? node_record(request) : MadStatus::UNSUPPORTED_ATTRIBUTE;
    case sa_attribute::PORT_INFO_RECORD:
      return get ? port_info_record(request) : MadStatus::UNSUPPORTED_ATTRIBUTE;
    case sa_attribute::PATH_RECORD:
      return get ? path_record(request) : MadStatus::UNSUPPORTED_ATTRIBUTE;
    case sa_attribute::MC_MEMBER_RECORD:
      return mc_member_record(request);
  }
  return MadStatus::UNSUPPORTED_ATTRIBUTE;
}

// Nodes and paths --------------------------------------------------------------------------------

MadStatus Administration::class_port_info(const Request& request) const {
  using Info = spec::infiniband::class_port_info;
  std::ranges::fill(request.data, std::byte{});
  const util::MutableView<Info> out(request.data);
  out.set(Info::base_version, 1);
  out.set(Info::class_version, 2);
  out.set(Info::resp_time_value, kResponseTime);
  return MadStatus::OK;
}

MadStatus Administration::node_record(const Request& request) const {
  using Out = spec::infiniband::node_record;
  const util::MutableView<Out> out(request.data);
  if (!request.has(kLidComponent)) return MadStatus::SA_INSUFFICIENT;
  const auto* node = manager_.find(Lid(static_cast<std::uint16_t>(out.get(Out::lid))));
  if (node == nullptr) return MadStatus::SA_NO_RECORDS;
  std::ranges::fill(request.data, std::byte{});
  out.set(Out::lid, node->lid.value());
  std::ranges::copy(node->info, out.sub(Out::node_info).bytes().begin());
  std::ranges::copy(node->description, out.sub(Out::description).begin());
  return MadStatus::OK;
}

MadStatus Administration::port_info_record(const Request& request) const {
  using Out = spec::infiniband::port_info_record;
  const util::MutableView<Out> out(request.data);
  if (!request.has(kLidComponent)) return MadStatus::SA_INSUFFICIENT;
  const auto* node = manager_.find(Lid(static_cast<std::uint16_t>(out.get(Out::end_port_lid))));
  if (node == nullptr) return MadStatus::SA_NO_RECORDS;
  std::ranges::fill(request.data, std::byte{});
  out.set(Out::end_port_lid, node->lid.value());
  out.set(Out::port_num, node->number);
  std::ranges::copy(node->port_info, out.sub(Out::port_info).bytes().begin());
  return MadStatus::OK;
}

/// All paths here have one switch, one lane, one rate.
MadStatus Administration::path_record(const Request& request) const {
  using Out = spec::infiniband::path_record;
  using namespace path_component;
  const util::MutableView<Out> out(request.data);
  const auto lid = [&](auto field) { return Lid(static_cast<std::uint16_t>(out.get(field))); };
  const auto* source = request.has(kSgid)   ? find(out.sub(Out::sgid))
                       : request.has(kSlid) ? manager_.find(lid(Out::slid))
                                            : manager_.find(request.source);
  if (!request.has(kDgid) && !request.has(kDlid)) return MadStatus::SA_INSUFFICIENT;
  std::optional<Lid> to;
  Gid gid;
  if (request.has(kDgid)) gid = Gid::from(out.sub(Out::dgid));
  if (const auto group = groups_.find(gid); group != groups_.end()) {
    to = group->second.lid;
  } else if (const auto* node =
                 request.has(kDgid) ? find(out.sub(Out::dgid)) : manager_.find(lid(Out::dlid))) {
    to = node->lid;
    gid = gid_of(*node);
  }
  if (source == nullptr || !to || (request.has(kDlid) && lid(Out::dlid) != *to)) {
    return MadStatus::SA_NO_RECORDS;
  }
  const auto from = gid_of(*source);
  std::ranges::fill(request.data, std::byte{});
  std::ranges::copy(gid.bytes, out.sub(Out::dgid).begin());
  std::ranges::copy(from.bytes, out.sub(Out::sgid).begin());
  out.set(Out::dlid, to->value());
  out.set(Out::slid, source->lid.value());
  out.set(Out::reversible, 1);
  out.set(Out::numb_path, 1);
  out.set(Out::p_key, kDefaultPkey);
  out.set(Out::mtu_selector, kExactly);
  out.set(Out::mtu, kMtu4096);
  out.set(Out::rate_selector, kExactly);
  out.set(Out::rate, kRate40);
  out.set(Out::life_selector, kExactly);
  out.set(Out::life, kLife);
  return MadStatus::OK;
}

// Multicast groups -------------------------------------------------------------------------------

/// Takes the first LID that no group uses. @pre there is one
Lid Administration::take_lid() {
  std::size_t word = 0;
  while (lids_[word] == UINT64_MAX) ++word;
  const auto bit = static_cast<std::size_t>(std::countr_one(lids_[word]));
  lids_[word] |= std::uint64_t{1} << bit;
  return Lid(static_cast<std::uint16_t>(kFirstMulticastLid + word * 64 + bit));
}

Administration::Groups::iterator Administration::erase(Groups::iterator group) {
  const auto index = std::size_t{group->second.lid.value()} - kFirstMulticastLid;
  lids_[index / 64] &= ~(std::uint64_t{1} << index % 64);
  return groups_.erase(group);
}

Administration::Groups::iterator Administration::create(const Gid& mgid,
                                                        util::View<Record> record) {
  Group group{.lid = take_lid()};
  std::ranges::copy(record.bytes(), group.record.begin());
  const util::MutableView<Record> kept(group.record);
  auto named = mgid;
  if (mgid.is_zero()) {
    // No name is tried twice: a node may have taken all those that come next.
    do {
      named = gid_for(group.lid, static_cast<std::uint32_t>(counters_.names++));
      work_ += kNameWork;
    } while (groups_.contains(named));
  }
  std::ranges::copy(named.bytes, kept.sub(Record::mgid).begin());
  kept.set(Record::mlid, group.lid.value());
  kept.set(Record::mtu_selector, kExactly);
  kept.set(Record::mtu, kMtu4096);
  kept.set(Record::rate_selector, kExactly);
  kept.set(Record::rate, kRate40);
  kept.set(Record::life_selector, kExactly);
  kept.set(Record::life, kLife);
  return groups_.insert_or_assign(named, std::move(group)).first;
}

/// Updates the multicast forwarding table of the switch after `port` has joined or left: the mask
/// of the sixteen ports around it.
void Administration::forward(const Group& group, std::uint8_t port) {
  const auto index = group.lid.value() - kFirstMulticastLid;
  const std::size_t position = port / kPortsInMask;
  std::uint16_t mask = 0;
  for (const auto& [member, state] : group.members) {
    if ((state & kReceives) == 0 || member / kPortsInMask != position) continue;
    mask |= static_cast<std::uint16_t>(1u << member % kPortsInMask);
  }
  const auto modifier = position << 28 | index / kGroupsInBlock;  // no format: its two halves
  manager_.set_own(sm_attribute::MULTICAST_FORWARDING, static_cast<std::uint32_t>(modifier),
                   [&](std::span<std::byte, 64> data) {
                     util::store_be16(&data[2 * (index % kGroupsInBlock)], mask);
                   });
}

void Administration::show(const Group& group, const Manager::Node& member,
                          const Request& request) const {
  std::ranges::fill(request.data, std::byte{});
  std::ranges::copy(group.record, request.data.begin());
  const util::MutableView<Record> out(request.data);
  const auto gid = gid_of(member);
  std::ranges::copy(gid.bytes, out.sub(Record::port_gid).begin());
  const auto joined = group.members.find(member.port);
  out.set(Record::join_state, joined == group.members.end() ? 0 : joined->second);
}

MadStatus Administration::mc_member_record(const Request& request) {
  using namespace member_component;
  const util::View<Record> in(request.data);
  if (!request.has(kPortGid)) return MadStatus::SA_INSUFFICIENT;
  const auto* member = find(in.get(Record::port_gid));
  // IBTA 15.2.5.17: a port may join or leave only for itself.
  if (member == nullptr || member->lid != request.source) return MadStatus::SA_REQUEST_INVALID;
  if (request.method == Method::SET) return join(request, *member);
  const auto group =
      request.has(kMgid) ? groups_.find(Gid::from(in.get(Record::mgid))) : groups_.end();
  if (group == groups_.end()) return MadStatus::SA_NO_RECORDS;
  if (request.method == Method::DELETE) return leave(group, request, *member);
  show(group->second, *member, request);
  return MadStatus::OK;
}

MadStatus Administration::join(const Request& request, const Manager::Node& member) {
  using namespace member_component;
  const util::View<Record> in(request.data);
  const auto state = in.get(Record::join_state);
  if (!request.has(kJoinState) || state == 0) return MadStatus::SA_INSUFFICIENT;
  const auto mgid = request.has(kMgid) ? Gid::from(in.get(Record::mgid)) : Gid();
  auto group = groups_.find(mgid);
  if (group == groups_.end()) {
    // o15-0.2.3: a full member creates the group and specifies its attributes.
    for (const auto needed : {kQkey, kTclass, kPkey, kSl, kFlowLabel}) {
      if (!request.has(needed)) return MadStatus::SA_INSUFFICIENT;
    }
    if ((state & kFullMember) == 0 || (!mgid.is_zero() && mgid.bytes[0] != std::byte{0xFF})) {
      return MadStatus::SA_REQUEST_INVALID;
    }
    if (groups_.size() == kMulticastLids) return MadStatus::SA_NO_RESOURCES;
    group = create(mgid, in);
  }
  const util::View<Record> kept(group->second.record);
  const bool other = (request.has(kQkey) && in.get(Record::q_key) != kept.get(Record::q_key)) ||
                     (request.has(kPkey) && in.get(Record::p_key) != kept.get(Record::p_key));
  if (other) return MadStatus::SA_REQUEST_INVALID;
  group->second.members[member.port] |= state;
  forward(group->second, member.port);
  show(group->second, member, request);
  return MadStatus::OK;
}

MadStatus Administration::leave(Groups::iterator group, const Request& request,
                                const Manager::Node& member) {
  auto& members = group->second.members;
  const auto joined = members.find(member.port);
  const auto state = util::View<Record>(request.data).get(Record::join_state);
  if (joined == members.end() || (joined->second & state) != state || state == 0) {
    return MadStatus::SA_REQUEST_INVALID;
  }
  show(group->second, member, request);
  joined->second &= ~state;
  if (joined->second == 0) members.erase(joined);
  forward(group->second, member.port);
  if (members.empty() && !group->second.for_ever) erase(group);
  return MadStatus::OK;
}

void Administration::forget(std::uint8_t port) {
  for (auto group = groups_.begin(); group != groups_.end();) {
    auto& members = group->second.members;
    if (members.erase(port) != 0) forward(group->second, port);
    const bool gone = members.empty() && !group->second.for_ever;
    group = gone ? erase(group) : std::next(group);
  }
}

}  // namespace softhca::subnet
