#include "cli/run/run_control.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "cli/inspect_request.h"
#include "cli/isolate/answers.h"
#include "cli/words.h"
#include "door/control/control_point.h"

namespace softhca::cli {
namespace {

std::string error(std::string_view text) { return fmt::format("error: {}\n", text); }

}  // namespace

util::Result<std::unique_ptr<RunControl>> RunControl::create(const std::string& path) {
  auto directory = RunDirectory::create();
  if (!directory) return tl::unexpected(directory.error());
  std::unique_ptr<RunControl> control(new RunControl(*std::move(directory)));
  auto events = util::EventLoop::create();
  if (!events) return tl::unexpected(events.error());
  control->events_ = *std::move(events);
  auto socket = ControlSocket::listen(
      *control->events_, path,
      [raw = control.get()](std::string_view request, const ControlSocket::Reply& reply) {
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

/// inspect: as that of a server (control.h), with the processes in the place of the functions.
/// FUNCTION is one of a device, in all of them.
std::string RunControl::answer(std::string_view request) const {
  const auto command = next_word(request);
  if (command == "fault") {
    return error("these devices have no faults; those of an SDXI function have: softhca serve");
  }
  if (command != "inspect") return error("a request is inspect");
  const auto wanted = parse_inspect(request);
  if (!wanted) return error(wanted.error().message);
  const auto line =
      door::ControlPoint::line_of({.function = wanted->function, .show = wanted->show});
  std::map<std::string, std::string> answers;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory(), ignored)) {
    auto said = ask_control(entry.path().string(), line);
    // One that has ended since.
    if (!said) continue;
    answers.emplace(entry.path().filename().string(), *std::move(said));
  }
  const bool json = wanted->show.json;
  const auto what = wanted->function.empty() ? "softhca" : wanted->function;
  auto out = std::string(kOk) + (json ? "{\n" : "softhca:\n");
  for (bool first = true; auto& [name, said] : answers) {
    out += to_text({.text = json && !first ? "," : "",
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

}  // namespace softhca::cli
