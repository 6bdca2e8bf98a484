// Flows: which frames go to which raw packet QP (host-door contract 4.12), in the words of
// ibv_create_flow or of the device (mlx5dv_create_flow).
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "uverbs/flow_specs.h"
#include "uverbs/method.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using Op = spec::command_opcode;

namespace {

using namespace rules;

/// ib_flow_attr_type.
enum FlowType : std::uint32_t { kNormal, kAllDefault, kMulticastDefault, kSniffer };
/// As the mlx5 driver has them: those of the program, and behind them what is left.
constexpr unsigned kPriorityMax = 14;
constexpr unsigned kLeftMulticast = 15, kLeft = 16;
constexpr std::uint32_t kTagMax = 0xffffff;

constexpr AttributeRule kDestroyFlow[] = {object(UVERBS_ATTR_DESTROY_FLOW_HANDLE)};
constexpr AttributeRule kCreateMatcher[] = {made(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE),
                                            in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, 1),
                                            in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, 0),
                                            in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, 1),
                                            in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, 4, false),
                                            in(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, 1, false)};
constexpr AttributeRule kDestroyMatcher[] = {object(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE)};
constexpr AttributeRule kCreateFlow[] = {
    made(MLX5_IB_ATTR_CREATE_FLOW_HANDLE),
    in(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, 1),
    object(MLX5_IB_ATTR_CREATE_FLOW_MATCHER),
    object(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, false),
    object(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, false),
    in(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, 0, false),
    in(MLX5_IB_ATTR_CREATE_FLOW_TAG, 4, false),
    in(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, 0, false),
    in(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, 0, false),
    in(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, 4, false)};

Errno read_fields(const Request& request, std::uint16_t id, FlowMatch::Fields& out) {
  // Programs have more dwords than the device compares; those are 0.
  std::vector<std::byte> bytes(request.size(id));
  if (bytes.size() > sizeof(mlx5_ib_match_params)) return EINVAL;
  if (const auto wrong = request.copy_in(id, bytes); wrong != 0) return wrong;
  const auto known = std::min(bytes.size(), out.size());
  std::ranges::copy(std::span(bytes).first(known), out.begin());
  const auto beyond = std::span(bytes).subspan(known);
  const bool zero = std::ranges::all_of(beyond, [](auto byte) { return byte == std::byte{0}; });
  return zero ? 0 : EOPNOTSUPP;
}

bool leads_to(const DevxObject& object, FlowRule& rule) {
  if (object.name.maker == Op::CREATE_TIR) {
    rule.to = spec::destination_type::TIR;
  } else if (object.name.maker == Op::CREATE_FLOW_TABLE) {
    rule.to = spec::destination_type::FLOW_TABLE;
  } else {
    return false;
  }
  rule.to_number = object.name.number;
  return true;
}

}  // namespace

std::span<const Context::Method> Context::flow_methods() {
  static constexpr Method kMethods[] = {
      {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, kDestroyFlow,
       &Context::destroy<Flow, UVERBS_ATTR_DESTROY_FLOW_HANDLE>},
      {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, kCreateFlow, &Context::create_matched_flow},
      {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, kCreateMatcher,
       &Context::create_matcher},
      {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, kDestroyMatcher,
       &Context::destroy<FlowMatcher, MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE>},
  };
  return kMethods;
}

/// Where the frames of a flow to `qp` go.
Errno Context::lead_to_qp(QueuePair* qp, FlowRule& rule) const {
  if (qp == nullptr) return EINVAL;
  rule.to = spec::destination_type::TIR;
  rule.to_number = qp->raw == nullptr ? qp->scaling_tirn : qp->raw->tirn();
  return rule.to_number == 0 ? EINVAL : 0;
}

Errno Context::create_flow(Request& request) {
  struct Head {
    std::uint32_t comp_mask, qp_handle;
    std::uint32_t type;
    std::uint16_t size, priority;
    std::uint8_t count, reserved[2], port;
    std::uint32_t flags;
  };
  static_assert(sizeof(Head) == sizeof(ib_uverbs_create_flow));
  const auto head = request.get<Head>(UVERBS_ATTR_CORE_IN);
  std::vector<std::byte> all(request.size(UVERBS_ATTR_CORE_IN));
  if (const auto wrong = request.copy_in(UVERBS_ATTR_CORE_IN, all); wrong != 0) return wrong;
  if (head.comp_mask != 0 || head.size > all.size() - sizeof head) return EINVAL;
  if (head.port != 1) return EINVAL;
  if (head.flags != 0 || head.type > kMulticastDefault) return EOPNOTSUPP;
  if (head.type == kNormal && head.priority > kPriorityMax) return ENOMEM;
  FlowRule rule;
  rule.priority = head.priority;
  const auto specs = std::span(all).subspan(sizeof head, head.size);
  if (const auto wrong = read_flow_specs(specs, head.count, rule); wrong != 0) return wrong;
  if (head.type != kNormal) {
    if (head.count != 0) return EINVAL;
    rule.priority = head.type == kAllDefault ? kLeft : kLeftMulticast;
    if (head.type == kMulticastDefault) match_multicast(rule.match);
  }
  auto* qp = objects_.find<QueuePair>(head.qp_handle);
  if (const auto wrong = lead_to_qp(qp, rule); wrong != 0) return wrong;
  auto flow = std::make_unique<Flow>(device_);
  flow->qp = Use(qp);
  if (const auto wrong = device_.flows().add(rule, flow->id); wrong != 0) return wrong;
  const auto handle = objects_.add(std::move(flow));
  const auto wrong = request.put(UVERBS_ATTR_CORE_OUT,
                                 ib_uverbs_create_flow_resp{.comp_mask = 0, .flow_handle = handle});
  if (wrong != 0) objects_.remove(handle);
  return wrong;
}

Errno Context::create_matcher(Request& request) {
  auto matcher = std::make_unique<FlowMatcher>();
  if (request.get<std::uint32_t>(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS) != 0 ||
      request.get<std::uint8_t>(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE) !=
          MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX) {
    return EOPNOTSUPP;
  }
  const auto type = request.variant(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE);
  if (type != MLX5_IB_FLOW_TYPE_NORMAL) return EOPNOTSUPP;
  matcher->priority = request.get<std::uint16_t>(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE);
  if (matcher->priority > kPriorityMax) return ENOMEM;
  matcher->match.criteria = request.get<std::uint8_t>(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA);
  const auto wrong =
      read_fields(request, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, matcher->match.mask);
  if (wrong != 0) return wrong;
  const auto handle = objects_.add(std::move(matcher));
  const auto told = request.put_number(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, handle);
  if (told != 0) objects_.remove(handle);
  return told;
}

Errno Context::create_matched_flow(Request& request) {
  auto* matcher = objects_.find<FlowMatcher>(request.number(MLX5_IB_ATTR_CREATE_FLOW_MATCHER));
  if (matcher == nullptr) return ENOENT;
  if (request.size(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS) != 0 ||
      request.size(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX) != 0) {
    return EOPNOTSUPP;
  }
  const auto flags = request.get<std::uint32_t>(MLX5_IB_ATTR_CREATE_FLOW_FLAGS);
  if ((flags & ~std::uint32_t{MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP}) != 0) return EOPNOTSUPP;
  FlowRule rule;
  rule.priority = matcher->priority;
  rule.match = matcher->match;
  rule.drops = flags != 0;
  rule.tag = request.get<std::uint32_t>(MLX5_IB_ATTR_CREATE_FLOW_TAG);
  if (rule.tag > kTagMax) return EINVAL;
  const auto wrong = read_fields(request, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, rule.match.value);
  if (wrong != 0) return wrong;
  auto flow = std::make_unique<Flow>(device_);
  flow->matcher = Use(matcher);
  const bool to_qp = request.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
  const bool to_devx = request.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX);
  if (int{to_qp} + int{to_devx} + int{rule.drops} != 1) return EINVAL;
  if (to_qp) {
    auto* qp = objects_.find<QueuePair>(request.number(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP));
    if (const auto no = lead_to_qp(qp, rule); no != 0) return no;
    flow->qp = Use(qp);
  } else if (to_devx) {
    auto* to = objects_.find<DevxObject>(request.number(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX));
    if (to == nullptr || !leads_to(*to, rule)) return EINVAL;
    flow->qp = Use(to);
  }
  if (const auto no = device_.flows().add(rule, flow->id); no != 0) return no;
  const auto handle = objects_.add(std::move(flow));
  const auto told = request.put_number(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, handle);
  if (told != 0) objects_.remove(handle);
  return told;
}

}  // namespace softhca::uverbs
