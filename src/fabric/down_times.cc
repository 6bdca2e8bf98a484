#include "fabric/down_times.h"

#include <algorithm>

namespace softhca::fabric {

bool keeps_down(const FaultRule& rule, util::Duration since) {
  if (rule.window != util::Duration::zero() && since >= rule.window) return false;
  if (rule.time == util::Duration::zero()) return true;
  return (rule.period == util::Duration::zero() ? since : since % rule.period) < rule.time;
}

std::optional<util::Duration> next_edge(const FaultRule& rule, util::Duration since) {
  const bool ends = rule.window != util::Duration::zero();
  if (ends && since >= rule.window) return std::nullopt;
  std::optional<util::Duration> edge;
  if (rule.period != util::Duration::zero()) {
    const auto phase = since % rule.period;
    edge = since - phase + (phase < rule.time ? rule.time : rule.period);
  } else if (rule.time != util::Duration::zero() && since < rule.time) {
    edge = rule.time;
  }
  return ends ? std::min(edge.value_or(rule.window), rule.window) : edge;
}

}  // namespace softhca::fabric
