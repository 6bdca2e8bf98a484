#include "door/engine/questions.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "rdma_cm/manager.h"
#include "util/inspection.h"
#include "util/log.h"
#include "util/work_budget.h"

namespace softhca::door {
namespace {

/// Work for a part of an answer, during which calls of the program wait (util::WorkBudget).
constexpr std::int64_t kPieceOfAnswer = 25'000;

}  // namespace

void Questions::listen(const std::string& directory) {
  auto control = ControlPoint::create(directory);
  if (control) {
    control_.emplace(*std::move(control));
  } else {
    util::log(util::LogLevel::kWarning, "softhca inspect does not find this process: {}",
              control.error().message);
  }
}

std::optional<pollfd> Questions::wanted() const {
  if (!control_) return std::nullopt;
  return pollfd{.fd = control_->fd(), .events = control_->events(), .revents = 0};
}

bool Questions::note_event(int fd) {
  if (!control_ || control_->fd() != fd) return false;
  pending_ = true;
  return true;
}

void Questions::note_time() {
  if (control_ && control_->is_overdue(util::monotonic_now())) pending_ = true;
}

void Questions::answer() {
  pending_ = false;
  control_->serve([this](const auto& question) { return answer_to(question); });
}

/// Answers in parts. In between the devices work, and calls of the program run.
std::string Questions::answer_to(const ControlPoint::Question& question) {
  util::Inspection inspection(question.function.empty() ? "softhca" : question.function,
                              question.show);
  bool known = false;
  for (bool done = false; !done;) {
    const std::lock_guard held(state_.lock());
    (void)state_.turn();
    util::WorkBudget work(kPieceOfAnswer);
    done = inspection.go_on(work, [&](util::Inspection& out) {
      state_.cards().for_each([&](const Card& card) {
        const auto& model = card.model();
        if (question.function.empty()) {
          out.group(model.name(), [&] {
            model.inspect(out);
            card.machines().inspect(out);
          });
        } else if (question.function == model.name()) {
          known = true;
          model.inspect(out);
          card.machines().inspect(out);
        }
      });
      known = state_.channels().inspect(question.function, out) || known;
    });
  }
  return known ? "ok\n" + inspection.finish()
               : fmt::format("error: there is no function '{}'\n", question.function);
}

}  // namespace softhca::door
