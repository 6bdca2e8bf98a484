#include "uverbs/flow_commands.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "uverbs/abi.h"
#include "uverbs/devx_object.h"
#include "uverbs/flow_counters.h"
#include "uverbs/flow_specs.h"
#include "uverbs/queue_pair.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;

namespace {

using namespace rules;

/// ib_flow_attr_type.
enum FlowType : std::uint32_t { kNormal, kAllDefault, kMulticastDefault, kSniffer };
/// ib_flow_flags. kDoNotTrap: frames also continue to later rules. kEgress: the flow matches sent
/// frames.
constexpr std::uint32_t kDoNotTrap = 2, kEgress = 4, kFlagsEnd = 8;
/// IB_FLOW_SPEC_SUPPORT_LAYERS.
constexpr unsigned kSpecsMax = 10;

constexpr AttributeRule kDestroyFlow[] = {object(UVERBS_ATTR_DESTROY_FLOW_HANDLE)};
constexpr AttributeRule kCreateMatcher[] = {made(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE),
                                            in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, 1),
                                            in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, 0),
                                            value_in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, 1),
                                            flags_in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS),
                                            const_in(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, 8, false)};
constexpr AttributeRule kDestroyMatcher[] = {object(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE)};
constexpr AttributeRule kCreateFlow[] = {
    made(MLX5_IB_ATTR_CREATE_FLOW_HANDLE),
    in(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, 1),
    object(MLX5_IB_ATTR_CREATE_FLOW_MATCHER),
    object(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, false),
    object(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, false),
    in(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, 0, false),
    value_in(MLX5_IB_ATTR_CREATE_FLOW_TAG, 4, false),
    in(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, 0, false),
    in(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, 0, false),
    flags_in(MLX5_IB_ATTR_CREATE_FLOW_FLAGS)};

constexpr AttributeRule kModifyHeader[] = {made(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE),
                                           in(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM, 8),
                                           const_in(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE, 8)};
constexpr AttributeRule kReformatPacket[] = {
    made(MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE),
    in(MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF, 1, false),
    const_in(MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE, 8),
    const_in(MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE, 8)};

Errno read_fields(const Request& request, std::uint16_t id, FlowMatch::Fields& out) {
  // Programs may pass more dwords than the device compares; the excess must be 0.
  std::vector<std::byte> bytes(request.size(id));
  if (bytes.size() > sizeof(mlx5_ib_match_params)) return EINVAL;
  if (const auto wrong = request.copy_in(id, bytes); wrong != 0) return wrong;
  const auto known = std::min(bytes.size(), out.size());
  std::ranges::copy(std::span(bytes).first(known), out.begin());
  const auto beyond = std::span(bytes).subspan(known);
  const bool zero = std::ranges::all_of(beyond, [](auto byte) { return byte == std::byte{0}; });
  return zero ? 0 : EOPNOTSUPP;
}

/// Whether frames may go on from the rule's table (fwd_next_prio_supported of mlx5_core). Only
/// tables of received frames have a next one.
bool has_next_table(const FlowRule& rule) { return rule.table == spec::flow_table_type::NIC_RX; }

bool leads_to(const DevxObject& object, FlowRule& rule) {
  if (object.name.kind == spec::object_kind::TIR) {
    rule.to = spec::destination_type::TIR;
  } else if (object.name.kind == spec::object_kind::FLOW_TABLE) {
    rule.to = spec::destination_type::FLOW_TABLE;
  } else {
    return false;
  }
  rule.leads = true;
  rule.to_number = object.name.number;
  return true;
}

/// Makes a QP the destination of a flow.
Errno lead_to_qp(const QueuePair& qp, FlowRule& rule) {
  rule.leads = true;
  rule.to = spec::destination_type::TIR;
  rule.to_number = qp.tirn().value_or(0);
  return rule.to_number == 0 ? EINVAL : 0;
}

}  // namespace

std::span<const Method<FlowCommands>> FlowCommands::methods() {
  static constexpr Method<FlowCommands> kMethods[] = {
      {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, kDestroyFlow, &FlowCommands::destroy_flow},
      {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, kCreateFlow,
       &FlowCommands::create_matched_flow},
      {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, kCreateMatcher,
       &FlowCommands::create_matcher},
      {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, kDestroyMatcher,
       &FlowCommands::destroy_matcher},
      {UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER, kModifyHeader,
       &FlowCommands::no_frame_changes},
      {UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT,
       kReformatPacket, &FlowCommands::no_frame_changes},
  };
  return kMethods;
}

std::span<const WriteCommand<FlowCommands>> FlowCommands::write_commands() {
  static constexpr WriteCommand<FlowCommands> kCommands[] = {
      {{extended(IB_USER_VERBS_EX_CMD_CREATE_FLOW), 24, 8, kListFollows},
       &FlowCommands::create_flow},
  };
  return kCommands;
}

/// Actions that modify frames exist on later devices only.
Errno FlowCommands::no_frame_changes(Request&) { return EOPNOTSUPP; }

namespace {

/// ib_uverbs_create_flow with its ib_uverbs_flow_attr.
struct FlowHead {
  std::uint32_t comp_mask, qp_handle;
  std::uint32_t type;
  std::uint16_t size, priority;
  std::uint8_t count, reserved[2], port;
  std::uint32_t flags;
  bool is_leftover() const { return type == kAllDefault || type == kMulticastDefault; }
};
static_assert(sizeof(FlowHead) == sizeof(ib_uverbs_create_flow));

/// The checks of ib_uverbs_ex_create_flow.
Errno check_head(const FlowHead& head, std::size_t bytes_behind) {
  constexpr std::size_t kSpecMax = sizeof(ib_uverbs_flow_spec_ipv6);
  if (head.comp_mask != 0 || head.flags >= kFlagsEnd) return EINVAL;
  if ((head.flags & kDoNotTrap) != 0 && head.is_leftover()) return EINVAL;
  if (head.count > kSpecsMax || head.size > head.count * kSpecMax) return EINVAL;
  if (head.reserved[0] != 0 || head.reserved[1] != 0) return EINVAL;
  if (head.size > bytes_behind) return ENOSPC;
  return head.port != kPort1 ? EINVAL : 0;
}

/// The checks of mlx5_ib_create_flow.
Errno check_kind(const FlowHead& head) {
  if (head.priority > FlowRule::kPriorityMax) return ENOMEM;
  if ((head.flags & ~(kDoNotTrap | kEgress)) != 0) return EINVAL;
  if ((head.flags & kEgress) != 0 && head.is_leftover()) return EINVAL;
  return head.type > kSniffer ? EOPNOTSUPP : 0;
}

}  // namespace

Errno FlowCommands::create_flow(Request& request) {
  const auto head = request.get<FlowHead>(UVERBS_ATTR_CORE_IN);
  std::vector<std::byte> all(request.size(UVERBS_ATTR_CORE_IN));
  if (const auto wrong = request.copy_in(UVERBS_ATTR_CORE_IN, all); wrong != 0) return wrong;
  if (const auto wrong = check_head(head, all.size() - sizeof head); wrong != 0) return wrong;
  QueuePair* qp = nullptr;
  if (const auto missing = file_.objects.find(head.qp_handle, qp); missing != 0) return missing;
  std::vector<FlowSpec> specs;
  const auto behind = std::span(all).subspan(sizeof head, head.size);
  if (const auto wrong = read_flow_specs(behind, head.count, specs); wrong != 0) return wrong;
  if (const auto wrong = check_kind(head); wrong != 0) return wrong;
  if (!qp->tirn()) return EINVAL;
  FlowRule rule;
  rule.passes = head.type == kNormal && (head.flags & kDoNotTrap) != 0;
  rule.priority = FlowRule::place_of(head.priority, rule.passes);
  std::optional<std::uint32_t> counts;
  if (head.type == kNormal) {
    if (!rule.passes && is_for_groups(specs)) rule.priority = FlowRule::kMulticast;
    if (const auto wrong = apply_flow_specs(specs, rule, counts); wrong != 0) return wrong;
  } else if (head.is_leftover()) {
    // Such a flow compares nothing else; its specifications are ignored.
    rule.priority = FlowRule::kLeft;
    match_group_bit(rule.match, true);
  }
  auto flow = std::make_unique<Flow>(file_.device);
  flow->qp = Use(qp);
  if (counts) {
    if (const auto wrong = count_by(file_, request, *counts, *flow, rule); wrong != 0) return wrong;
  }
  // Sent frames are allowed. A drop applies to all matching frames, whatever their queue.
  const bool sends = (head.flags & kEgress) != 0;
  if (rule.drops) rule.passes = false;
  if (!sends && !rule.drops) {
    if (const auto wrong = lead_to_qp(*qp, rule); wrong != 0) return wrong;
  }
  using enum spec::flow_table_type;
  rule.table = head.type == kSniffer ? SNIFFER_RX : sends ? NIC_TX : NIC_RX;
  if (rule.passes && !has_next_table(rule)) return EOPNOTSUPP;
  if (const auto wrong = flow->add(rule); wrong != 0) return wrong;
  // A second rule: for sent frames, and for unicast frames (create_leftovers_rule).
  if (head.type == kSniffer) rule.table = SNIFFER_TX;
  if (head.type == kAllDefault) match_group_bit(rule.match, false);
  if (head.type == kSniffer || head.type == kAllDefault) {
    if (const auto wrong = flow->add(rule); wrong != 0) return wrong;
  }
  Reply reply(request, file_.objects, std::move(flow));
  const ib_uverbs_create_flow_resp answer{.comp_mask = 0, .flow_handle = reply.handle()};
  return reply.put(UVERBS_ATTR_CORE_OUT, answer).end();
}

namespace {

/// mlx5_ib_matcher_ns: the program names the table by its type or by flags, not by both.
Errno read_table_type(const Request& request, std::uint64_t& type) {
  type = MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX;
  const bool has_flags = request.has(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS);
  if (request.has(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE)) {
    if (has_flags) return EINVAL;
    type = request.get<std::uint64_t>(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE);
    // An FDB needs an e-switch in switchdev mode.
    const bool is_there = type <= MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX;
    return is_there && type != MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB ? 0 : EINVAL;
  }
  const auto flags = request.get<std::uint32_t>(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS);
  if ((flags & ~kEgress) != 0) return EINVAL;
  if (flags != 0) type = MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX;
  return 0;
}

/// A ConnectX-4 has no RDMA flow tables.
Errno choose_table(const FlowMatcher& matcher, FlowRule& rule) {
  if (matcher.type != MLX5_IB_FLOW_TYPE_NORMAL) return EOPNOTSUPP;
  if (matcher.priority > FlowRule::kPriorityMax) return ENOMEM;
  if (matcher.table_type > MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX) return EOPNOTSUPP;
  using enum spec::flow_table_type;
  rule.table = matcher.table_type == MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX ? NIC_TX : NIC_RX;
  return 0;
}

}  // namespace

/// Validation waits until a flow uses the matcher (raw_fs_rule_add).
Errno FlowCommands::create_matcher(Request& request) {
  auto matcher = std::make_unique<FlowMatcher>();
  matcher->type = request.variant(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE);
  if (matcher->type > MLX5_IB_FLOW_TYPE_MC_DEFAULT) return EOPNOTSUPP;
  if (matcher->type == MLX5_IB_FLOW_TYPE_NORMAL) {
    matcher->priority = request.get<std::uint16_t>(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE);
  }
  matcher->match.criteria = request.get<std::uint8_t>(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA);
  auto wrong = read_fields(request, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, matcher->match.mask);
  if (wrong == 0) wrong = read_table_type(request, matcher->table_type);
  if (wrong != 0) return wrong;
  return Reply(request, file_.objects, std::move(matcher))
      .put_handle(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE)
      .end();
}

/// A rule for received frames has exactly one destination. A rule for sent frames may have none:
/// they then leave as usual, unless the rule drops them or names another table.
Errno FlowCommands::find_destination(const Request& request, Flow& flow, FlowRule& rule) const {
  const bool to_qp = request.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
  const bool to_devx = request.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX);
  const bool sends = rule.table == spec::flow_table_type::NIC_TX;
  const int ways = int{to_qp} + int{to_devx} + int{rule.drops} + int{rule.misses && !sends};
  if (ways > 1 || (ways == 0 && !sends) || (to_qp && sends)) return EINVAL;
  if (to_qp) {
    QueuePair* qp = nullptr;
    const auto handle = request.number(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
    if (const auto missing = file_.objects.find(handle, qp); missing != 0) return missing;
    if (const auto no = lead_to_qp(*qp, rule); no != 0) return no;
    flow.qp = Use(qp);
  } else if (to_devx) {
    DevxObject* to = nullptr;
    if (const auto missing = file_.find(request, MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, to);
        missing != 0) {
      return missing;
    }
    if (!leads_to(*to, rule)) return EINVAL;
    if (sends && rule.to != spec::destination_type::FLOW_TABLE) return EINVAL;
    flow.qp = Use(to);
  }
  return 0;
}

/// Finds a counter that the program created by a DevX command. There are no bulk counters, so an
/// offset is meaningless.
Errno FlowCommands::find_devx_counter(const Request& request, Flow& flow, FlowRule& rule) const {
  const auto size = request.size(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX);
  if (size == 0) return 0;
  if (size != sizeof(std::uint32_t)) return EINVAL;
  const auto handle = request.get<std::uint32_t>(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX);
  DevxObject* counter = nullptr;
  if (const auto missing = file_.objects.find(handle, counter); missing != 0) return missing;
  if (counter->name.kind != spec::object_kind::FLOW_COUNTER) return EINVAL;
  const auto offsets = request.size(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET);
  if (offsets != 0 && offsets != sizeof(std::uint32_t)) return EINVAL;
  const auto offset = request.get<std::uint32_t>(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET);
  if (offset != 0) return EINVAL;
  rule.counters.push_back(counter->name.number);
  flow.counters.emplace_back(counter);
  return 0;
}

Errno FlowCommands::create_matched_flow(Request& request) {
  FlowMatcher* matcher = nullptr;
  if (const auto missing = file_.find(request, MLX5_IB_ATTR_CREATE_FLOW_MATCHER, matcher);
      missing != 0) {
    return missing;
  }
  if (request.size(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS) != 0) return EOPNOTSUPP;
  constexpr std::uint32_t kDrop = MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP;
  constexpr std::uint32_t kMiss = MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS;
  const auto flags = request.get<std::uint32_t>(MLX5_IB_ATTR_CREATE_FLOW_FLAGS);
  if ((flags & ~(kDrop | kMiss)) != 0 || flags == (kDrop | kMiss)) return EINVAL;
  FlowRule rule;
  if (const auto wrong = choose_table(*matcher, rule); wrong != 0) return wrong;
  const bool sends = rule.table == spec::flow_table_type::NIC_TX;
  rule.match = matcher->match;
  rule.drops = flags == kDrop;
  rule.misses = flags == kMiss;
  rule.tag = request.get<std::uint32_t>(MLX5_IB_ATTR_CREATE_FLOW_TAG);
  if (rule.tag > kTagMax || (sends && rule.tag != 0)) return EINVAL;
  const auto wrong = read_fields(request, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, rule.match.value);
  if (wrong != 0) return wrong;
  rule.priority = rule.match.is_for_groups() ? FlowRule::kMulticast
                                             : FlowRule::place_of(matcher->priority, false);
  auto flow = std::make_unique<Flow>(file_.device);
  flow->matcher = Use(matcher);
  if (const auto no = find_destination(request, *flow, rule); no != 0) return no;
  if (const auto no = find_devx_counter(request, *flow, rule); no != 0) return no;
  if (rule.misses && !has_next_table(rule)) return EOPNOTSUPP;
  if (const auto no = flow->add(rule); no != 0) return no;
  return Reply(request, file_.objects, std::move(flow))
      .put_handle(MLX5_IB_ATTR_CREATE_FLOW_HANDLE)
      .end();
}

Errno FlowCommands::destroy_flow(Request& request) {
  return destroy_object<Flow>(file_.objects, request.number(UVERBS_ATTR_DESTROY_FLOW_HANDLE));
}

Errno FlowCommands::destroy_matcher(Request& request) {
  return destroy_object<FlowMatcher>(file_.objects,
                                     request.number(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE));
}

}  // namespace softhca::uverbs
