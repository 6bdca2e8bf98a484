#include "server/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

#include "control/answer_text.h"
#include "control/words.h"
#include "server/switches.h"

namespace softhca::server {
namespace {

/// Room for the closing lines of an answer, wherever it is cut.
constexpr std::size_t kClosing = 4096;

/// The name under which ports to networks of the host appear beside the functions.
constexpr std::string_view kPorts = "ports";

/// Advice for a path at which nothing answers.
constexpr std::string_view kWhichPath =
    "give the path that a running softhca serve, run or env has as its --control";

}  // namespace

void ServerControl::answer(std::string_view request, const control::ControlSocket::Reply& reply) {
  const auto command = control::next_word(request);
  if (command == "inspect") return inspect(request, reply);
  const auto others = [&] { return rules_.answer(request); };
  const auto answer = command != "fault"            ? util::fail("a request is inspect or fault")
                      : targets_.network == nullptr ? others()
                                                    : targets_.network->answer(request, others);
  reply(answer ? std::string(control::kOk) + *answer
               : control::error_answer(answer.error().message));
}

bool ServerControl::is_known(std::string_view name) const {
  return name.empty() || (name == control::kLoop && targets_.loop != nullptr) ||
         (name == kPorts && targets_.switches != nullptr) ||
         std::ranges::any_of(targets_.functions,
                             [name](const auto* function) { return function->name() == name; });
}

void ServerControl::inspect(std::string_view words, const control::ControlSocket::Reply& reply) {
  const auto request = control::parse_inspect(words);
  if (!request) return reply(control::error_answer(request.error().message));
  const auto& name = request->function;
  if (!is_known(name)) {
    return reply(control::error_answer(fmt::format("there is no function '{}'", name)));
  }
  if (answers_.size() == kAnswersMax)
    return reply(control::error_answer("too many ask at the same time"));
  auto show = request->show;
  show.bytes = (name.empty() ? kBytesOfAll : kBytes) - kClosing;
  answers_.push_back({.function = name,
                      .inspection = {name.empty() ? "softhca" : name, show},
                      .deadline = util::monotonic_now() + kPatience,
                      .reply = reply});
  next_.raise();
}

void ServerControl::turn() {
  if (answers_.empty()) return;
  next_.raise();  // in any case, so that the next answer gets its turn
  auto answer = std::move(answers_.front());
  answers_.pop_front();
  bool done = true;
  try {
    done = !answer.reply.wanted() || go_on(answer);
  } catch (const std::bad_alloc&) {
    answer.reply(control::error_answer("there is no memory for the answer"));
  }
  if (!done) answers_.push_front(std::move(answer));
}

bool ServerControl::go_on(Answer& answer) {
  auto& inspection = answer.inspection;
  util::WorkBudget work(kTurnWork);
  bool done = inspection.go_on(work, [&](util::Inspection& out) { show(answer, out); });
  loop_.budget().charge(work.done());
  if (!done && answer.deadline <= util::monotonic_now()) {
    inspection.cut(fmt::format("the rest is left out: the answer has taken {} s",
                               kPatience / std::chrono::seconds(1)));
    done = true;
  }
  if (done) answer.reply(std::string(control::kOk) + inspection.finish());
  return done;
}

void ServerControl::show(const Answer& answer, util::Inspection& out) const {
  const auto show_loop = [&](util::InspectNode& node) { targets_.loop->inspect(node); };
  for (const auto* function : targets_.functions) {
    if (answer.function.empty()) {
      out.group(function->name(), [&] { function->inspect(out); });
    } else if (function->name() == answer.function) {
      return function->inspect(out);
    }
  }
  if (targets_.switches != nullptr && (answer.function.empty() || answer.function == kPorts)) {
    const auto show_ports = [&](util::InspectNode& node) { targets_.switches->inspect(node); };
    if (!answer.function.empty()) return out.values(show_ports);
    out.part(kPorts, show_ports);
  }
  if (targets_.loop == nullptr) return;
  answer.function.empty() ? out.part(control::kLoop, show_loop) : out.values(show_loop);
}

util::Result<std::string> ask_server(const std::string& path, std::string_view request) {
  const auto answer = control::ask_control(path, request);
  if (!answer) return util::fail(fmt::format("{}; {}", answer.error().message, kWhichPath));
  if (answer->starts_with(control::kOk)) return answer->substr(control::kOk.size());
  std::string_view words = *answer;
  if (words.starts_with(control::kError)) words.remove_prefix(control::kError.size());
  while (words.ends_with('\n')) words.remove_suffix(1);
  if (words.empty()) words = "the server hung up";
  return util::fail(std::string(words));
}

int ask_and_print(const std::string& path, std::string_view request) {
  const auto answer = ask_server(path, request);
  if (answer) {
    std::fwrite(answer->data(), 1, answer->size(), stdout);
    return 0;
  }
  std::fprintf(stderr, "softhca: %s\n", answer.error().message.c_str());
  return 1;
}

}  // namespace softhca::server
