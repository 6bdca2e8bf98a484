// Any text as a fault rule of SDXI: --fault, and `fault add` on the control socket.
//
// Beside what the sanitizers see: a text that is refused says why; one that is accepted has words
// that are accepted again and mean the same rule.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sdxi/fault_rule.h"

namespace {

using namespace softhca;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto rule = sdxi::parse_fault(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!rule) {
    require(!rule.error().message.empty());
    return 0;
  }
  const auto text = to_text(*rule);
  const auto again = sdxi::parse_fault(text);
  require(again.has_value());
  require(again->action == rule->action && again->function == rule->function);
  require(again->context == rule->context && again->operation == rule->operation);
  require(again->nth == rule->nth && again->every == rule->every);
  require(again->delay == rule->delay && again->error_class == rule->error_class);
  require(to_text(*again) == text);
  return 0;
}
