#include "door/control/control_point.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "os/kept_fd.h"
#include "os/unix_socket.h"

namespace softhca::door {
namespace {

constexpr int kBacklog = 16;
constexpr std::size_t kLineMax = 256;
/// Maximum number of processes with the same name and number.
constexpr unsigned kNamesakes = 64;

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
  auto listener = os::bind_unix(name, "control");
  for (unsigned other = 2; !listener && other <= kNamesakes; ++other) {
    listener = os::bind_unix(fmt::format("{}-{}", name, other), "control");
  }
  if (!listener) return tl::unexpected(listener.error());
  if (::listen(listener->get(), kBacklog) != 0) return util::fail_errno("control: listen");
  return ControlPoint(os::keep(*std::move(listener)));
}

int ControlPoint::fd() const { return asker_ ? asker_.get() : listener_.get(); }

short ControlPoint::events() const { return asker_ && answer_ ? POLLOUT : POLLIN; }

bool ControlPoint::accept(util::Time now) {
  os::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return false;
  asker_ = os::keep(std::move(socket));
  patient_until_ = now + kPatience;
  question_.clear();
  answer_.reset();
  sent_ = 0;
  return true;
}

bool ControlPoint::read_question() {
  while (question_.find('\n') == std::string::npos) {
    std::array<char, kLineMax> bytes;
    const auto size = ::recv(asker_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) return false;
    if (size <= 0 || question_.size() >= kLineMax) {
      asker_.reset();
      return false;
    }
    question_.append(bytes.data(), static_cast<std::size_t>(size));
  }
  question_.resize(question_.find('\n'));
  return true;
}

void ControlPoint::send_answer() {
  while (sent_ != answer_->size()) {
    const auto size = ::send(asker_.get(), answer_->data() + sent_, answer_->size() - sent_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) break;
    sent_ += static_cast<std::size_t>(size);
  }
  asker_.reset();
  answer_.reset();
}

void ControlPoint::serve(const std::function<std::string(const Question&)>& answer,
                         const std::function<util::Time()>& clock) {
  if (is_overdue(clock())) asker_.reset();
  if (!asker_ && !accept(clock())) return;
  if (!answer_) {
    if (!read_question()) return;
    const auto question = parse(question_);
    answer_ = question ? answer(*question) : "error: no such question\n";
    patient_until_ = clock() + kPatience;
  }
  send_answer();
}

}  // namespace softhca::door
