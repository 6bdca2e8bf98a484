#include "hca/faults.h"

#include "util/log.h"

namespace softhca::hca {
namespace {

bool meets_function(const FaultRule& rule, std::string_view function) {
  return rule.function.empty() || rule.function == function;
}

bool meets(const FaultRule& rule, std::string_view function, const FaultEvent& event) {
  return rule.action == event.action && !rule.immediate() && meets_function(rule, function) &&
         (!rule.qp || rule.qp == event.qp) && (!rule.cq || rule.cq == event.cq) &&
         (rule.opcode.empty() || rule.opcode == event.opcode);
}

void fire(Faults::Entry& entry, std::string_view function) {
  ++entry.fired;
  util::log(util::LogLevel::kDebug, "{}: fault {} fired ({} times): {}", function, entry.id,
            entry.fired, entry.rule.kind().name);
}

}  // namespace

const Faults::Entry* Faults::take(std::string_view function, const FaultEvent& event) {
  Entry* acts = nullptr;
  for (auto& entry : entries()) {
    if (!meets(entry.rule, function, event)) continue;
    if (entry.rule.include(++entry.matched) && acts == nullptr) acts = &entry;
  }
  if (acts != nullptr) fire(*acts, function);
  return acts;
}

const Faults::Entry* Faults::take_immediate(std::string_view function, FaultId after) {
  for (auto& entry : entries()) {
    if (entry.id <= after || !entry.rule.immediate() || !meets_function(entry.rule, function)) {
      continue;
    }
    ++entry.matched;
    fire(entry, function);
    return &entry;
  }
  return nullptr;
}

}  // namespace softhca::hca
