#include "connectx/fault_injection.h"

#include <fmt/format.h>

#include "connectx/command/command_interface.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/event/completion_queue.h"
#include "connectx/qp/rdma.h"

namespace softhca::connectx {

FaultInjection::FaultInjection(Device& device)
    : DeviceFaults(device, device.notes()), device_(device) {}

bool FaultInjection::stops_commands() const {
  return breaks() || device_.health().stopped_at().has_value();
}

void FaultInjection::follow_in_parts() {
  device_.commands().follow_fault_rules();
  auto& driver = device_.driver();
  driver.completion_queues().follow_fault_rules();
  driver.rdma().follow_fault_rules();
  driver.ethernet().follow_fault_rules();
}

std::string FaultInjection::fail(const hca::FaultRule& rule) {
  const auto syndrome = rule.syndrome ? static_cast<Health::Syndrome>(*rule.syndrome)
                                      : Health::Syndrome::FW_INTERNAL_ERR;
  device_.health().report_fatal(syndrome, device_.now());
  device_.driver().drop_objects();
  return fmt::format("internal error {:#x}", static_cast<unsigned>(syndrome));
}

void FaultInjection::note_work() { device_.note_work(); }

}  // namespace softhca::connectx
