// Any text as a fault rule of SDXI or of the network: --fault, and `fault add` on the control
// socket.
//
// Besides the sanitizers' checks: a refused text gives a reason. An accepted one prints as words
// that parse to the same rule.
#include <cstdint>
#include <string_view>

#include "fabric/fault_rule.h"
#include "oracle.h"
#include "sdxi/fault_rule.h"

namespace {

using namespace softhca;

using fuzz::check;

/// Compares texts, which hold every field.
void play_network_rule(std::string_view input) {
  const auto rule = fabric::parse_fault(input);
  if (!rule) return check(!rule.error().message.empty());
  const auto text = fabric::to_text(*rule);
  const auto again = fabric::parse_fault(text);
  check(again.has_value());
  check(again->action == rule->action && again->port == rule->port);
  check(again->opcodes == rule->opcodes && again->from == rule->from && again->to == rule->to);
  check(again->probability == rule->probability && again->rate == rule->rate);
  check(again->time == rule->time && again->queue == rule->queue);
  check(fabric::to_text(*again) == text);
}

void play(std::string_view input) {
  const fuzz::Turn turn;
  if (fabric::is_network_rule(input)) return play_network_rule(input);
  const auto rule = sdxi::parse_fault(input);
  if (!rule) return check(!rule.error().message.empty());
  const auto text = to_text(*rule);
  const auto again = sdxi::parse_fault(text);
  check(again.has_value());
  check(again->action == rule->action && again->function == rule->function);
  check(again->context == rule->context && again->operation == rule->operation);
  check(again->nth == rule->nth && again->every == rule->every);
  check(again->delay == rule->delay && again->error_class == rule->error_class);
  check(to_text(*again) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input(
      [&] { play(std::string_view(reinterpret_cast<const char*>(data), size)); });
}
