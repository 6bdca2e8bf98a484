#include "server/isolate/isolated_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "control/answer_text.h"
#include "control/answers.h"
#include "server/hca_functions.h"
#include "util/inspect.h"

namespace softhca::server {
namespace {

using Reply = control::ControlSocket::Reply;

/// Names of the parts about processes and their loops, beside those of the functions.
constexpr std::string_view kProcesses = "processes", kServer = "server";
/// Maximum bytes kept of the answers of all processes together.
constexpr std::size_t kAnswerBytesMax = 4 << 20;

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) return words;
    words.push_back(text.substr(0, text.find(' ')));
    text.remove_prefix(words.back().size());
  }
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (bad != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Sends all questions, and calls `done` with the answers, in order, when the last one has come.
void ask_all(const std::vector<std::pair<GuestProcess*, std::string>>& questions,
             std::function<void(std::vector<std::string>)> done) {
  if (questions.empty()) return done({});
  struct Gathered {
    std::vector<std::string> answers;
    std::size_t missing;
    std::function<void(std::vector<std::string>)> done;
    std::size_t bytes = 0;
  };
  const auto all = std::make_shared<Gathered>(
      Gathered{std::vector<std::string>(questions.size()), questions.size(), std::move(done)});
  for (std::size_t i = 0; i != questions.size(); ++i) {
    questions[i].first->ask(questions[i].second, [all, i](std::string answer) {
      const bool fits = answer.size() <= kAnswerBytesMax - all->bytes;
      all->answers[i] = fits ? std::move(answer)
                             : control::error_answer("left out: the answer has 4 MiB at most");
      if (fits) all->bytes += all->answers[i].size();
      if (--all->missing == 0) all->done(std::move(all->answers));
    });
  }
}

/// The counters of one rule in a process's answer: "1: do=fail: matched 2, fired 1".
struct Count {
  sdxi::FaultId id;
  std::uint64_t matched, fired;
};
std::optional<Count> parse_count(std::string_view line) {
  constexpr std::string_view kMatched = ": matched ", kFired = ", fired ";
  const auto colon = line.find(':'), matched = line.rfind(kMatched), fired = line.rfind(kFired);
  if (colon == line.npos || matched == line.npos || fired == line.npos || fired < matched) {
    return std::nullopt;
  }
  const auto start = matched + kMatched.size();
  if (fired < start) return std::nullopt;
  const auto id = number_of<sdxi::FaultId>(line.substr(0, colon));
  const auto first = number_of<std::uint64_t>(line.substr(start, fired - start));
  const auto second = number_of<std::uint64_t>(line.substr(fired + kFired.size()));
  if (!id || !first || !second) return std::nullopt;
  return Count{*id, *first, *second};
}

std::vector<Count> parse_counts(std::string_view answer) {
  std::vector<Count> counts;
  if (!answer.starts_with(control::kOk)) return counts;
  while (!answer.empty()) {
    const auto line = answer.substr(0, answer.find('\n'));
    answer.remove_prefix(std::min(line.size() + 1, answer.size()));
    if (const auto count = parse_count(line)) counts.push_back(*count);
  }
  return counts;
}

/// The rules that the function takes.
FaultFamilies families(const DeviceSpec& spec) {
  FaultFamilies families;
  families.sdxi = !is_nic(spec);
  families.add_hca(dialect_of(spec));
  return families;
}

/// The parts of a rule that this process needs.
struct ParsedRule {
  std::string function;
  std::string shown;
};

util::Result<ParsedRule> parse_sdxi_rule(std::string_view text) {
  auto rule = sdxi::parse_fault(text);
  if (!rule) return tl::unexpected(rule.error());
  return ParsedRule{rule->function, to_text(*rule)};
}

util::Result<ParsedRule> parse_rule(std::string_view text, const RuleFamily& family) {
  if (family.family == FaultFamily::kSdxi) return parse_sdxi_rule(text);
  auto rule = parse_hca_rule(text, family.hcas);
  if (!rule) return tl::unexpected(rule.error());
  return ParsedRule{rule->function, to_text(*rule, family.hcas.front()->names)};
}

}  // namespace

std::size_t IsolatedControl::process_of(std::size_t device) const {
  const auto found = std::ranges::find_if(groups_, [device](const auto& group) {
    return std::ranges::find(group, device) != group.end();
  });
  return static_cast<std::size_t>(found - groups_.begin());
}

bool IsolatedControl::takes(std::size_t process, FaultFamily family) const {
  return std::ranges::any_of(groups_[process], [&](auto device) {
    const auto found = families(specs_[device]);
    return family == FaultFamily::kHca ? !found.hcas.empty() : found.sdxi;
  });
}

std::optional<FaultFamilies> IsolatedControl::families_of(std::string_view function) const {
  std::optional<FaultFamilies> found;
  if (function.empty()) found.emplace();
  for (const auto& spec : specs_) {
    if (!function.empty() && name_of(spec) != function) continue;
    if (!found) found.emplace();
    found->sdxi |= families(spec).sdxi;
    found->add_hca(dialect_of(spec));
  }
  return found;
}

void IsolatedControl::answer(std::string_view request, Reply reply) {
  const auto words = words_of(request);
  if (!words.empty() && words[0] == "inspect") {
    request.remove_prefix(static_cast<std::size_t>(words[0].end() - request.begin()));
    return inspect(request, std::move(reply));
  }
  if (!words.empty() && words[0] == "fault") return fault(request, reply);
  reply(control::error_answer("a request is inspect or fault"));
}

void IsolatedControl::inspect(std::string_view words, Reply reply) {
  const auto request = control::parse_inspect(words);
  if (!request) return reply(control::error_answer(request.error().message));
  const auto& wanted = request->function;
  const bool json = request->show.json;
  if (wanted.empty()) return inspect_all(*request, std::move(reply));
  if (wanted == kProcesses) return reply(std::string(control::kOk) + inspect_processes(json));
  if (wanted == control::kLoop) return inspect_loop(json, std::move(reply));
  const auto device = std::ranges::find(specs_, wanted, name_of);
  if (device == specs_.end()) {
    return reply(control::error_answer(fmt::format("there is no function '{}'", wanted)));
  }
  processes_[process_of(static_cast<std::size_t>(device - specs_.begin()))]->ask(
      control::to_line(*request), [json, reply = std::move(reply)](std::string answer) {
        reply(control::harmless(std::move(answer), json));
      });
}

/// Asks about each function separately, so that no process can answer for another's.
void IsolatedControl::inspect_all(control::InspectRequest request, Reply reply) {
  Questions questions;
  for (std::size_t i = 0; i != specs_.size(); ++i) {
    request.function = name_of(specs_[i]);
    questions.emplace_back(processes_[process_of(i)], control::to_line(request));
  }
  const bool json = request.show.json;
  std::ranges::move(ask_loops(json), std::back_inserter(questions));
  ask_all(questions, [this, json, reply = std::move(reply)](std::vector<std::string> answers) {
    std::vector<control::AnswerPart> parts{{.text = json ? "{\n" : "softhca:\n"}};
    const auto add = [&](std::string_view name, std::string answer) {
      parts.push_back({.text = json && parts.size() != 1 ? "," : "",
                       .name = std::string(name),
                       .what = std::string(name),
                       .answer = std::move(answer),
                       .depth = 1});
    };
    for (std::size_t i = 0; i != specs_.size(); ++i) add(name_of(specs_[i]), std::move(answers[i]));
    add(kProcesses, std::string(control::kOk) + inspect_processes(json));
    if (json) parts.push_back({.text = fmt::format(",\"{}\": ", control::kLoop)});
    add_loops(parts, json, 1, std::span(answers).subspan(specs_.size()));
    if (json) parts.push_back({.text = "}\n"});
    joined_.join(std::move(parts), json, reply);
  });
}

void IsolatedControl::inspect_loop(bool json, Reply reply) {
  ask_all(ask_loops(json), [this, json, reply = std::move(reply)](auto answers) {
    std::vector<control::AnswerPart> parts;
    add_loops(parts, json, 0, answers);
    joined_.join(std::move(parts), json, reply);
  });
}

IsolatedControl::Questions IsolatedControl::ask_loops(bool json) const {
  Questions questions;
  for (auto* process : processes_) {
    questions.emplace_back(process,
                           fmt::format("inspect {}{}", json ? "--json " : "", control::kLoop));
  }
  return questions;
}

/// Adds the turn times of the server's own loop, and those that each process reports of itself.
void IsolatedControl::add_loops(std::vector<control::AnswerPart>& parts, bool json, unsigned depth,
                                std::span<std::string> answers) const {
  util::InspectNode own((std::string(kServer)));
  times_->inspect(own);
  parts.push_back({.text = json ? "{\n" : fmt::format("{:{}}{}:\n", "", 2 * depth, control::kLoop),
                   .name = std::string(kServer),
                   .what = std::string(kServer),
                   .answer = std::string(control::kOk) + (json ? own.to_json() : own.to_text()),
                   .depth = depth + 1});
  parts.push_back({.text = json ? fmt::format(",\"{}\": {{\n", kProcesses)
                                : fmt::format("{:{}}{}:\n", "", 2 * depth + 2, kProcesses)});
  for (std::size_t i = 0; i != processes_.size(); ++i) {
    parts.push_back({.text = json && i != 0 ? "," : "",
                     .name = processes_[i]->name(),
                     .what = std::string(control::kLoop),
                     .answer = std::move(answers[i]),
                     .depth = depth + 2});
  }
  if (json) parts.push_back({.text = "}\n}\n"});
}

std::string IsolatedControl::inspect_processes(bool json) const {
  util::InspectNode root((std::string(kProcesses)));
  for (const auto* process : processes_) process->inspect(root.child(process->name()));
  return json ? root.to_json() : root.to_text();
}

util::Result<IsolatedControl::Rules::iterator> IsolatedControl::make_rule(std::string_view text) {
  if (rules_.size() == sdxi::Faults::kMax) {
    return util::fail(fmt::format("there are {} rules already", sdxi::Faults::kMax));
  }
  const auto family = family_of(text, [this](auto function) { return families_of(function); });
  if (!family) return tl::unexpected(family.error());
  auto rule = parse_rule(text, *family);
  if (!rule) return tl::unexpected(rule.error());
  Rule made{std::move(rule->shown), std::string(text), {}};
  const auto device = std::ranges::find(specs_, rule->function, name_of);
  for (std::size_t i = 0; i != groups_.size(); ++i) {
    const bool here = rule->function.empty()
                          ? takes(i, family->family)
                          : i == process_of(static_cast<std::size_t>(device - specs_.begin()));
    if (here) made.ids[i] = 0;
  }
  return rules_.emplace(++last_rule_, std::move(made)).first;
}

util::Result<void> IsolatedControl::add_rule(std::string_view text) {
  if (auto made = make_rule(text); !made) return tl::unexpected(made.error());
  return {};
}

std::vector<std::string> IsolatedControl::rules_for(std::size_t index) {
  std::vector<std::string> texts;
  for (auto& [number, rule] : rules_) {
    const auto id = rule.ids.find(index);
    if (id == rule.ids.end()) continue;
    texts.push_back(rule.text);
    id->second = static_cast<sdxi::FaultId>(texts.size());  // the order of a new process
  }
  return texts;
}

void IsolatedControl::fault(std::string_view request, const Reply& reply) {
  const auto words = words_of(request);
  if (words.size() > 3) return reply(control::error_answer("a rule has no blanks"));
  const auto verb = words.size() > 1 ? words[1] : std::string_view();
  const auto argument = words.size() > 2 ? words[2] : std::string_view();
  if (verb == "add") return fault_add(argument, reply);
  if (verb == "remove") return fault_remove(argument, reply);
  if (!argument.empty()) {
    return reply(control::error_answer(fmt::format("fault {} takes no argument", verb)));
  }
  if (verb == "list" || verb == "clear") return fault_list(verb == "clear", reply);
  reply(control::error_answer("fault takes add RULE, list, remove NUMBER or clear"));
}

void IsolatedControl::fault_add(std::string_view text, Reply reply) {
  const auto made = make_rule(text);
  if (!made) return reply(control::error_answer(made.error().message));
  const auto number = (*made)->first;
  Questions questions;
  std::vector<std::size_t> places;
  for (const auto& [process, id] : (*made)->second.ids) {
    questions.emplace_back(processes_[process], fmt::format("fault add {}", text));
    places.push_back(process);
  }
  ask_all(questions, [this, number, places, reply = std::move(reply)](const auto& answers) {
    const auto rule = rules_.find(number);
    if (rule == rules_.end()) return reply(control::error_answer("the rule was removed"));
    for (std::size_t i = 0; i != places.size(); ++i) {
      const auto counts = parse_counts(answers[i]);
      auto& id = rule->second.ids[places[i]];
      // A process that is not running gets the rule at its next start.
      if (id == 0 && counts.size() == 1) id = counts[0].id;
    }
    reply(fmt::format("{}{}: {}: matched 0, fired 0\n", control::kOk, number, rule->second.shown));
  });
}

void IsolatedControl::fault_remove(std::string_view text, const Reply& reply) {
  const auto number = number_of<sdxi::FaultId>(text);
  const auto rule = number ? rules_.find(*number) : rules_.end();
  if (rule == rules_.end()) {
    return reply(control::error_answer(fmt::format("there is no rule '{}'; see fault list", text)));
  }
  Questions questions;
  for (const auto& [process, id] : rule->second.ids) {
    if (id != 0) questions.emplace_back(processes_[process], fmt::format("fault remove {}", id));
  }
  rules_.erase(rule);
  ask_all(questions, [reply](const auto&) { reply(std::string(control::kOk)); });
}

void IsolatedControl::fault_list(bool clear, Reply reply) {
  Questions questions;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i != groups_.size(); ++i) {
    if (!takes(i, FaultFamily::kSdxi) && !takes(i, FaultFamily::kHca)) continue;
    questions.emplace_back(processes_[i], clear ? "fault clear" : "fault list");
    places.push_back(i);
  }
  ask_all(questions, [this, clear, places, reply = std::move(reply)](const auto& answers) {
    // A hostile process can only falsify the counters of its own rules.
    std::map<std::size_t, std::vector<Count>> counts;  // by process
    for (std::size_t i = 0; i != places.size(); ++i) counts[places[i]] = parse_counts(answers[i]);
    std::string out(control::kOk);
    for (const auto& [number, rule] : rules_) {
      std::uint64_t matched = 0, fired = 0;
      for (const auto& [process, id] : rule.ids) {
        const auto count = std::ranges::find(counts[process], id, &Count::id);
        if (count == counts[process].end()) continue;
        matched += count->matched;
        fired += count->fired;
      }
      out += fmt::format("{}: {}: matched {}, fired {}\n", number, rule.shown, matched, fired);
    }
    if (clear) rules_.clear();
    reply(std::move(out));
  });
}

}  // namespace softhca::server
