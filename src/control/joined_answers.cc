#include "control/joined_answers.h"

#include <utility>

namespace softhca::control {
namespace {

/// Estimates the size of all parts together: if the text grew by doubling, one turn would copy all
/// of it. Lines of a text answer are indented.
std::size_t size_of(const std::vector<AnswerPart>& parts, bool json) {
  std::size_t size = 0;
  for (const auto& part : parts) {
    size += part.text.size() + 2 * part.name.size() + part.answer.size();
  }
  return json ? size : size + size / 2;
}

}  // namespace

void JoinedAnswers::join(std::vector<AnswerPart> parts, bool json, ControlSocket::Reply reply) {
  auto& joining = joinings_.emplace_back();
  joining.text.reserve(kOk.size() + size_of(parts, json));
  joining.text = kOk;
  joining.parts = std::move(parts);
  joining.json = json;
  joining.reply = std::move(reply);
  next_.raise();
}

void JoinedAnswers::turn() {
  if (joinings_.empty()) return;
  next_.raise();
  auto joining = std::move(joinings_.front());
  joinings_.pop_front();
  if (joining.reply.wanted() && !go_on(joining)) joinings_.push_back(std::move(joining));
}

bool JoinedAnswers::go_on(Joining& joining) {
  util::WorkBudget work(kTurnWork);
  while (!work.spent()) {
    auto& writer = joining.writer;
    if (!writer && joining.next == joining.parts.size()) break;
    if (!writer) writer.emplace(std::move(joining.parts[joining.next++]), joining.json);
    if (writer->go_on(joining.text, work)) writer.reset();
    work.charge(kPartWork);
  }
  loop_.budget().charge(work.done());
  const bool done = !joining.writer && joining.next == joining.parts.size();
  if (done) joining.reply(std::move(joining.text));
  return done;
}

}  // namespace softhca::control
