#include "cli/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "cli/control_socket.h"
#include "sdxi/device.h"
#include "util/inspect.h"

namespace softhca::cli {
namespace {

/// What the loop of the server is called beside the functions.
constexpr std::string_view kLoop = "loop";
constexpr std::string_view kOk = "ok\n";
constexpr std::string_view kError = "error: ";

/// Takes the next word off `text`; empty at its end.
std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

util::Result<std::string> inspect(const ControlTargets& targets, std::string_view words) {
  bool json = false;
  std::string_view wanted;
  for (auto word = next_word(words); !word.empty(); word = next_word(words)) {
    if (word == "--json") {
      json = true;
    } else if (wanted.empty()) {
      wanted = word;
    } else {
      return util::fail("inspect takes one function, or none for all");
    }
  }
  util::InspectNode root("softhca");
  for (const auto* function : targets.functions) {
    if (wanted.empty()) {
      function->inspect(root.child(function->name()));
    } else if (function->name() == wanted) {
      util::InspectNode one(function->name());
      function->inspect(one);
      return json ? one.to_json() : one.to_text();
    }
  }
  if (targets.loop != nullptr && (wanted.empty() || wanted == kLoop)) {
    if (wanted == kLoop) {
      util::InspectNode one((std::string(kLoop)));
      targets.loop->inspect(one);
      return json ? one.to_json() : one.to_text();
    }
    targets.loop->inspect(root.child(kLoop));
  } else if (!wanted.empty()) {
    return util::fail(fmt::format("there is no function '{}'", wanted));
  }
  return json ? root.to_json() : root.to_text();
}

std::string describe(const sdxi::Faults::Entry& entry) {
  return fmt::format("{}: {}: matched {}, fired {}\n", entry.id, to_text(entry.rule), entry.matched,
                     entry.fired);
}

util::Result<std::string> fault(const ControlTargets& targets, std::string_view words) {
  auto& faults = *targets.faults;
  const auto verb = next_word(words);
  const auto argument = next_word(words);
  if (!next_word(words).empty()) return util::fail("a rule has no blanks");
  if (verb == "add") {
    auto rule = parse_fault_for(targets, argument);
    if (!rule) return tl::unexpected(rule.error());
    if (faults.rules().size() == sdxi::Faults::kMax) {
      return util::fail(fmt::format("there are {} rules already", sdxi::Faults::kMax));
    }
    return describe(*faults.find(faults.add(*std::move(rule))));
  }
  if (verb == "remove") {
    sdxi::FaultId id = 0;
    const std::string digits(argument);
    const auto* end = digits.c_str() + digits.size();
    if (std::from_chars(digits.c_str(), end, id).ptr != end || !faults.remove(id)) {
      return util::fail(fmt::format("there is no rule '{}'; see fault list", argument));
    }
    return std::string();
  }
  if (!argument.empty()) return util::fail(fmt::format("fault {} takes no argument", verb));
  if (verb == "list" || verb == "clear") {
    std::string text;
    for (const auto& entry : faults.rules()) text += describe(entry);
    if (verb == "clear") faults.clear();
    return text;
  }
  return util::fail("fault takes add RULE, list, remove NUMBER or clear");
}

}  // namespace

util::Result<sdxi::FaultRule> parse_fault_for(const ControlTargets& targets,
                                              std::string_view text) {
  auto rule = sdxi::parse_fault(text);
  if (!rule || rule->function.empty()) return rule;
  const auto found =
      std::ranges::find(targets.functions, rule->function, [](const auto* f) { return f->name(); });
  if (found == targets.functions.end()) {
    return util::fail(fmt::format("there is no function '{}'", rule->function));
  }
  if (dynamic_cast<const sdxi::Device*>(*found) == nullptr) {
    return util::fail(fmt::format("{} is no SDXI function: it has no faults", rule->function));
  }
  return rule;
}

std::string answer_control(const ControlTargets& targets, std::string_view request) {
  const auto command = next_word(request);
  const auto answer = command == "inspect" ? inspect(targets, request)
                      : command == "fault" ? fault(targets, request)
                                           : util::fail("a request is inspect or fault");
  if (!answer) return fmt::format("{}{}\n", kError, answer.error().message);
  return std::string(kOk) + *answer;
}

int ask_and_print(const std::string& path, std::string_view request) {
  const auto answer = ask_control(path, request);
  if (answer && answer->starts_with(kOk)) {
    const auto text = std::string_view(*answer).substr(kOk.size());
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  std::string_view words = answer ? std::string_view(*answer) : answer.error().message;
  if (words.starts_with(kError)) words.remove_prefix(kError.size());
  while (words.ends_with('\n')) words.remove_suffix(1);
  if (words.empty()) words = "the server hung up";
  std::fprintf(stderr, "softhca: %.*s\n", static_cast<int>(words.size()), words.data());
  return 1;
}

}  // namespace softhca::cli
