#include "driver/verbs/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "spec/infiniband/constants.h"

namespace softhca::driver::verbs {

using spec::infiniband::QpAttribute;

std::string_view to_string(Feature feature) {
  constexpr std::array<std::string_view, kFeatures> kNames = {
      "UC",        "XRC",       "atomics", "shared receive queues",
      "SRQ limit", "multicast", "RoCE v1", "solicited events"};
  return kNames[static_cast<std::size_t>(feature)];
}

std::string_view to_string(AsyncEventType type) {
  constexpr std::array<std::string_view, 12> kNames = {
      "communication established", "SQ drained",      "last WQE reached", "QP fatal error",
      "QP request error",          "QP access error", "CQ error",         "SRQ limit reached",
      "SRQ fatal error",           "port active",     "port down",        "other"};
  static_assert(kNames.size() == static_cast<std::size_t>(AsyncEventType::kOther) + 1);
  return kNames[static_cast<std::size_t>(type)];
}

const Limitation* DeviceAttributes::lacks(Feature feature) const {
  const auto found = std::ranges::find(limitations, feature, &Limitation::feature);
  return found != limitations.end() ? &*found : nullptr;
}

util::Result<void> require(const DeviceAttributes& device, Feature feature) {
  const auto* const lacks = device.lacks(feature);
  if (lacks == nullptr) return {};
  return util::fail(fmt::format("{} has no {}: {} ({})", device.model, to_string(feature),
                                lacks->words, lacks->section));
}

std::uint8_t mtu_code(unsigned bytes) {
  for (std::uint8_t code = 1; code <= 5; ++code) {
    if (spec::infiniband::mtu_bytes(code) == bytes) return code;
  }
  return 0;
}

QpAttributeSet QpAttributes::given() const {
  QpAttributeSet set;
  const auto note = [&](const auto& value, QpAttribute attribute) {
    if (value) set = set | QpAttributeSet{attribute};
  };
  note(state, QpAttribute::kState);
  note(current_state, QpAttribute::kCurrentState);
  note(access, QpAttribute::kAccessFlags);
  note(pkey_index, QpAttribute::kPkeyIndex);
  note(port, QpAttribute::kPort);
  note(qkey, QpAttribute::kQkey);
  note(path, QpAttribute::kAddressVector);
  note(path_mtu, QpAttribute::kPathMtu);
  note(timeout, QpAttribute::kTimeout);
  note(retry_count, QpAttribute::kRetryCount);
  note(rnr_retry, QpAttribute::kRnrRetry);
  note(receive_psn, QpAttribute::kRqPsn);
  note(send_psn, QpAttribute::kSqPsn);
  note(max_reads, QpAttribute::kMaxRdAtomic);
  note(max_peer_reads, QpAttribute::kMaxDestRdAtomic);
  note(min_rnr_timer, QpAttribute::kMinRnrTimer);
  note(destination_qpn, QpAttribute::kDestinationQpn);
  return set;
}

namespace {

/// Indexed by QpAttribute.
constexpr std::array<std::string_view, spec::infiniband::kQpAttributes> kAttributeNames = {
    "state",
    "current state",
    "SQ drain notification",
    "access flags",
    "P_Key index",
    "port",
    "Q_Key",
    "path",
    "path MTU",
    "timeout",
    "retry count",
    "RNR retry count",
    "receive PSN",
    "READs under way",
    "alternate path",
    "RNR NAK timer",
    "send PSN",
    "READs of the peer",
    "migration state",
    "queue capacity",
    "destination QPN"};

std::string names_of(QpAttributeSet set) {
  std::string names;
  for (std::size_t i = 0; i != kAttributeNames.size(); ++i) {
    if (!set.has(static_cast<QpAttribute>(i))) continue;
    if (!names.empty()) names += ", ";
    names += kAttributeNames[i];
  }
  return names;
}

QpAttributeSet without(QpAttributeSet set, QpAttributeSet other) {
  return QpAttributeSet::from_bits(set.bits() & ~other.bits());
}

}  // namespace

std::string check_transition(QpType type, QpState from, QpState to, QpAttributeSet given) {
  const auto* const transition = spec::infiniband::find_transition(type, from, to);
  const auto way = fmt::format("{} to {} of {}", to_string(from), to_string(to), to_string(type));
  if (transition == nullptr) return way + ": there is no such transition (IBTA 10.3.1)";
  const QpAttributeSet states{QpAttribute::kState, QpAttribute::kCurrentState};
  if (!given.covers(transition->required)) {
    return fmt::format("{}: missing: {} (IBTA 11.2.4.2)", way,
                       names_of(without(transition->required, given)));
  }
  const auto allowed = states | transition->required | transition->optional;
  if (!allowed.covers(given)) {
    return fmt::format("{}: not to be given: {} (IBTA 11.2.4.2)", way,
                       names_of(without(given, allowed)));
  }
  return {};
}

}  // namespace softhca::driver::verbs
