#include "cli/isolate/joined_answers.h"

#include <utility>

#include "cli/isolate/answers.h"

namespace softhca::cli {

void JoinedAnswers::join(std::vector<AnswerPart> parts, bool json, ControlSocket::Reply reply) {
  joinings_.push_back({.parts = std::move(parts),
                       .json = json,
                       .text = std::string(kOk),
                       .reply = std::move(reply)});
  next_.raise();
}

void JoinedAnswers::turn() {
  if (joinings_.empty()) return;
  next_.raise();
  auto joining = std::move(joinings_.front());
  joinings_.pop_front();
  if (joining.reply.wanted() && add_part(joining)) joinings_.push_back(std::move(joining));
}

bool JoinedAnswers::add_part(Joining& joining) {
  auto& part = joining.parts[joining.next++];
  joining.text += part.text;
  if (!part.name.empty()) {
    loop_.budget().charge(kByteWork * static_cast<std::int64_t>(part.answer.size()));
    joining.text += joining.json ? as_member(part.name, part.answer)
                                 : as_text(part.name, part.what, part.answer, part.depth);
    part.answer = {};
  }
  if (joining.next != joining.parts.size()) return true;
  joining.reply(std::move(joining.text));
  return false;
}

}  // namespace softhca::cli
