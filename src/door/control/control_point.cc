#include "door/control/control_point.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "vfio_user/kept_fd.h"
#include "vfio_user/unix_socket.h"

namespace softhca::door {
namespace {

constexpr int kBacklog = 16;
constexpr std::size_t kLineMax = 256;
/// Maximum number of processes with the same name and number.
constexpr unsigned kNamesakes = 64;

/// Waits until a socket is ready for `events`, within one total time limit.
class Patience {
 public:
  explicit Patience(const std::function<util::Time()>& clock)
      : clock_(clock), end_(clock() + ControlPoint::kPatience) {}

  /// False: the time is over.
  bool wait(int socket, short events) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - clock_());
    if (left.count() <= 0) return false;
    pollfd at{.fd = socket, .events = events, .revents = 0};
    return ::poll(&at, 1, static_cast<int>(left.count())) == 1;
  }

 private:
  const std::function<util::Time()>& clock_;
  util::Time end_;
};

std::string read_line(int socket, const Patience& patience) {
  std::string line;
  std::array<char, kLineMax> bytes;
  while (line.size() < kLineMax && patience.wait(socket, POLLIN)) {
    const auto size = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size <= 0) return {};
    line.append(bytes.data(), static_cast<std::size_t>(size));
    if (const auto end = line.find('\n'); end != std::string::npos) return line.substr(0, end);
  }
  return {};
}

void send_all(int socket, std::string_view text, const Patience& patience) {
  while (!text.empty() && patience.wait(socket, POLLOUT)) {
    const auto size = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
}

}  // namespace

std::string ControlPoint::line_of(const Question& question) {
  return fmt::format("inspect {:d} {} {} {}", question.show.json, question.show.from,
                     question.show.count, question.function);
}

std::optional<ControlPoint::Question> ControlPoint::parse(std::string_view line) {
  const std::string text(line);
  unsigned json = 0;
  std::uint64_t from = 0;
  std::uint32_t count = 0;
  std::array<char, kLineMax> function{};
  const int words = std::sscanf(text.c_str(), "inspect %u %" SCNu64 " %" SCNu32 " %255s", &json,
                                &from, &count, function.data());
  if (words < 3 || json > 1 || count == 0 || count > util::Inspection::kCountMax) {
    return std::nullopt;
  }
  Question question{.function = function.data(), .show = {}};
  question.show.json = json == 1;
  question.show.from = from;
  question.show.count = count;
  return question;
}

util::Result<ControlPoint> ControlPoint::create(const std::string& directory) {
  const auto name =
      fmt::format("{}/{:.15}.{}", directory, ::program_invocation_short_name, ::getpid());
  auto listener = vfio_user::bind_unix(name, "control");
  for (unsigned other = 2; !listener && other <= kNamesakes; ++other) {
    listener = vfio_user::bind_unix(fmt::format("{}-{}", name, other), "control");
  }
  if (!listener) return tl::unexpected(listener.error());
  if (::listen(listener->get(), kBacklog) != 0) return util::fail_errno("control: listen");
  return ControlPoint(vfio_user::keep(*std::move(listener)));
}

void ControlPoint::serve(const std::function<std::string(const Question&)>& answer,
                         const std::function<util::Time()>& clock) {
  const vfio_user::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return;
  const auto question = parse(read_line(socket.get(), Patience(clock)));
  const auto text = question ? answer(*question) : "error: no such question\n";
  send_all(socket.get(), text, Patience(clock));
}

}  // namespace softhca::door
