#include "run/run_control.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "control/answer_text.h"
#include "control/answers.h"
#include "control/inspect_request.h"
#include "control/words.h"
#include "door/control/control_point.h"
#include "os/foreign_bytes.h"
#include "os/unix_socket.h"
#include "run/hub_host.h"
#include "run/trunk_options.h"
#include "util/clock.h"

namespace softhca::run {
namespace {

constexpr std::string_view kNoAnswer = "it does not answer (is it stopped, or in a debugger?)";

/// Time limit for all processes' answers, shorter than that of the clients of this socket.
constexpr auto kAnswersPatience = std::chrono::seconds(2);
/// Limits on the stored answers of a run's processes. A process may answer without end, or make
/// sockets in the name of others.
constexpr std::size_t kAnswerMax = std::size_t{1} << 20;
constexpr std::size_t kRunAnswersMax = std::size_t{64} << 20;
constexpr std::size_t kAskedMax = 1024;

/// A process with a pending question.
struct Asked {
  std::string name;
  os::UniqueFd socket;  ///< none: its answer is complete, or it cannot be asked
  std::string answer = {};
};

/// Nothing: the process has ended.
std::optional<Asked> ask(const std::filesystem::path& path, const std::string& line) {
  Asked asked{.name = path.filename().string(), .socket = os::connect_at_once(path)};
  if (!asked.socket && errno != EAGAIN) return std::nullopt;
  if (asked.socket) {
    (void)::send(asked.socket.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } else {
    asked.answer = control::error_answer(kNoAnswer);
  }
  return asked;
}

bool is_of_hub(std::string_view function) {
  return function == HubHost::kHub || function == HubHost::kTrunk;
}

/// The questions to the hub, about itself and its trunk, as far as these are asked for.
std::vector<Asked> ask_hub(const std::string& fabric, control::InspectRequest wanted) {
  std::vector<Asked> all;
  if (fabric.empty()) return all;
  const auto selected = wanted.function;
  for (const auto what : {HubHost::kHub, HubHost::kTrunk}) {
    const bool is_there = what == HubHost::kHub || !read_trunk_words(fabric).empty();
    if (selected.empty() ? !is_there : selected != what) continue;
    wanted.function = what;
    auto asked = ask(HubHost::control_path(fabric), control::to_line(wanted) + "\n");
    if (!asked) continue;
    asked->name = what;
    all.push_back(*std::move(asked));
  }
  return all;
}

/// Appends to an answer, of which `room` is left for all. False: it is left out.
bool append(Asked& asked, std::string_view bytes, std::size_t& room) {
  if (bytes.size() > room || asked.answer.size() + bytes.size() > kAnswerMax) {
    room += asked.answer.size();
    asked.answer = control::error_answer("left out: more than 1 MiB, or 64 MiB of all");
    return false;
  }
  room -= bytes.size();
  asked.answer += bytes;
  return true;
}

/// Waits for more of the answers. False: none came in time, or all are complete.
bool receive(std::vector<Asked>& all, util::Time end, std::size_t& room, os::Janitor& janitor) {
  std::vector<pollfd> waits;
  for (const auto& one : all) {
    waits.push_back({.fd = one.socket ? one.socket.get() : -1, .events = POLLIN, .revents = 0});
  }
  const bool any = std::ranges::any_of(all, [](const Asked& one) { return bool(one.socket); });
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - util::monotonic_now());
  if (!any || left.count() <= 0) return false;
  if (::poll(waits.data(), waits.size(), static_cast<int>(left.count())) <= 0) return false;
  for (std::size_t i = 0; i != all.size(); ++i) {
    if (waits[i].revents == 0) continue;
    std::array<char, 16384> bytes;
    const auto size = os::receive_bytes(waits[i].fd, bytes, janitor);
    const std::string_view got(bytes.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    const bool more = size > 0 ? append(all[i], got, room) : size < 0 && errno == EAGAIN;
    if (!more) {
      os::close_connection(std::move(all[i].socket), janitor);
    }
  }
  return true;
}

/// The answers of all processes that listen in `directory`, and of `all`, by name.
std::map<std::string, std::string> ask_all(const std::string& directory, const std::string& line,
                                           std::vector<Asked> all, os::Janitor& janitor) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (all.size() == kAskedMax) break;
    if (auto asked = ask(entry.path(), line)) all.push_back(*std::move(asked));
  }
  auto room = kRunAnswersMax;
  const auto end = util::monotonic_now() + kAnswersPatience;
  while (receive(all, end, room, janitor)) {
  }
  std::map<std::string, std::string> answers;
  for (auto& one : all) {
    answers.emplace(std::move(one.name),
                    one.socket ? control::error_answer(kNoAnswer) : std::move(one.answer));
    os::close_connection(std::move(one.socket), janitor);
  }
  return answers;
}

}  // namespace

util::Result<std::unique_ptr<RunControl>> RunControl::create(const std::string& path,
                                                             std::string fabric,
                                                             fabric::FaultBook* book) {
  auto directory = RunDirectory::create();
  if (!directory) return tl::unexpected(directory.error());
  std::unique_ptr<RunControl> control(
      new RunControl(*std::move(directory), std::move(fabric), book));
  auto events = os::EventLoop::create();
  if (!events) return tl::unexpected(events.error());
  control->events_ = *std::move(events);
  auto socket = control::ControlSocket::listen(
      *control->events_, path,
      [raw = control.get()](std::string_view request, const control::ControlSocket::Reply& reply) {
        reply(raw->answer(request));
      });
  if (!socket) return tl::unexpected(socket.error());
  control->socket_ = *std::move(socket);
  control->thread_ = std::thread([raw = control.get()] {
    while (!raw->events_->stopped()) raw->events_->run_once(util::kNever);
  });
  return control;
}

RunControl::~RunControl() {
  if (!thread_.joinable()) return;
  events_->stop();
  thread_.join();
}

/// Serves fault as a server does (server/control.h), for the rules of the network.
std::string RunControl::fault(std::string_view words) {
  if (book_ == nullptr) {
    return control::error_answer("there are no fault rules here");
  }
  const auto verb = control::next_word(words);
  const auto argument = control::next_word(words);
  if (!control::next_word(words).empty()) return control::error_answer("a rule has no blanks");
  const auto answer = book_->answer(verb, argument);
  return answer ? std::string(control::kOk) + *answer
                : control::error_answer(answer.error().message);
}

/// Serves inspect as a server does (server/control.h), with the hub and the processes in place of
/// functions. Each process is asked for FUNCTION, the name of a device, unless the hub has it.
std::string RunControl::answer(std::string_view request) {
  const auto command = control::next_word(request);
  if (command == "fault") return fault(request);
  if (command != "inspect") return control::error_answer("a request is inspect or fault");
  const auto wanted = control::parse_inspect(request);
  if (!wanted) return control::error_answer(wanted.error().message);
  const auto line =
      door::ControlPoint::line_of({.function = wanted->function, .show = wanted->show});
  const bool is_hub = is_of_hub(wanted->function);
  auto answers = ask_all(is_hub ? std::string() : directory(), line + "\n",
                         ask_hub(fabric_, *wanted), janitor_);
  const bool all_failed = std::ranges::all_of(
      answers, [](const auto& one) { return one.second.starts_with(control::kError); });
  if (!wanted->function.empty() && all_failed) {
    return control::error_answer(
        fmt::format("no process of the run shows a function '{}'; inspect without "
                    "it shows all and each reason",
                    wanted->function));
  }
  const bool json = wanted->show.json;
  const auto what = wanted->function.empty() || is_hub ? "softhca" : wanted->function;
  auto out = std::string(control::kOk) + (json ? "{\n" : "softhca:\n");
  for (bool first = true; auto& [name, said] : answers) {
    out += control::to_text({.text = json && !first ? "," : "",
                             .name = name,
                             .what = what,
                             .answer = std::move(said),
                             .depth = 1},
                            json);
    first = false;
  }
  if (json) out += "}\n";
  return out;
}

}  // namespace softhca::run
