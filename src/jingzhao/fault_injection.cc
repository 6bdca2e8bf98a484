#include "jingzhao/fault_injection.h"

#include <utility>

#include "jingzhao/device.h"

namespace softhca::jingzhao {

using hca::FaultAction;

FaultInjection::FaultInjection(Device& device)
    : DeviceFaults(device, device.notes()), device_(device) {}

bool FaultInjection::lets_run(Opcode op) {
  if (failed_ || breaks()) return false;
  if (held_ != 0) {
    if (hook().holds(held_)) return false;
    held_ = 0;
  }
  return !hook() || std::exchange(met_, true) || inject(op);
}

/// @pre there are rules
bool FaultInjection::inject(Opcode op) {
  hca::FaultEvent event{.action = FaultAction::kHangCommand, .opcode = to_string(op)};
  if (const auto* rule = hook().take(event)) {
    held_ = rule->id;
    return false;
  }
  for (const auto action : {FaultAction::kInternalError, FaultAction::kRemove}) {
    event.action = action;
    if (const auto* rule = hook().take(event)) {
      break_soon(*rule);
      return false;
    }
  }
  event.action = FaultAction::kFailCommand;
  if (const auto* rule = hook().take(event)) injected_ = Status(rule->rule.status);
  return true;
}

void FaultInjection::end_command() {
  met_ = false;
  injected_.reset();
}

void FaultInjection::reset() {
  failed_ = false;
  held_ = 0;
  forget_break();
  end_command();
}

void FaultInjection::follow_in_parts() {
  if (!device_.initialized()) return;
  device_.objects().completion_queues->follow_fault_rules();
  device_.objects().queue_pairs->follow_fault_rules();
}

std::string FaultInjection::fail(const hca::FaultRule&) {
  if (device_.initialized()) {
    device_.objects().event_queues->post(EventType::LOCAL_CATAS_ERROR, 0);
  }
  device_.close();
  failed_ = true;
  return "LOCAL_CATAS_ERROR";
}

}  // namespace softhca::jingzhao
