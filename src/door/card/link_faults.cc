#include "door/card/link_faults.h"

#include <algorithm>

namespace softhca::door {
namespace {

/// Most frames of one direction in a turn: more might not fit into the rings to the hub, or would
/// keep the device waiting.
constexpr std::size_t kWaitedPerTurn = 64;

}  // namespace

std::unique_ptr<LinkFaults> LinkFaults::create(fabric::Port& below, Options options) {
  if (options.loss.probability <= 0 && options.rules.empty()) return nullptr;
  std::unique_ptr<LinkFaults> faults(new LinkFaults(below, options));
  if (!options.rules.empty()) {
    faults->reader_ = std::make_unique<fabric::FaultReader>(options.rules, faults->rules_);
  }
  if (options.loss.probability > 0) {
    faults->rules_.add(fabric::loss_rule(options.loss.probability, options.loss.seed));
  }
  return faults;
}

void LinkFaults::pass_time(util::Time now, std::size_t room) {
  if (reader_ != nullptr) reader_->follow();
  link_.handle_timeout(now, std::min(room, kWaitedPerTurn), kWaitedPerTurn);
}

std::optional<bool> LinkFaults::see_change() {
  const bool is_up = link_.link_up();
  if (is_up == was_up_) return std::nullopt;
  was_up_ = is_up;
  return is_up;
}

}  // namespace softhca::door
