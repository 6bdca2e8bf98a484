#include "connectx/command/uid_rules.h"

#include "connectx/base/resources.h"
#include "connectx/base/user_contexts.h"
#include "connectx/command/uid_references.h"
#include "connectx/driver_state.h"
#include "spec/connectx/command_role.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;
using Op = command_opcode;

constexpr std::string_view kUidSection = "mlx5 driver interface: DevX";

/// Null for a command that is for the kernel only.
const CommandSubject* find_subject(const Command& command) {
  const auto* role = find_role(static_cast<Op>(command.opcode));
  return role != nullptr && role->with_uid ? &role->owned : nullptr;
}

std::uint32_t number_of(const CommandSubject& subject, const Command& command) {
  return subject.number.read(subject.in_output ? command.out : command.in);
}

CommandResult check_raw_tx(const UserContexts& contexts, const Command& command) {
  constexpr auto kRawTx = static_cast<std::uint32_t>(uctx_cap_bit::RAW_TX);
  if (static_cast<Op>(command.opcode) != Op::CREATE_SQ) return {};
  if ((contexts.capabilities(Uid(command.uid)) & kRawTx) != 0) return {};
  return refuse(Status::BAD_PARAM, kUidSection, "an SQ of a context without RAW_TX");
}

}  // namespace

CommandResult check_uid(DriverState& driver, const Command& command) {
  const Uid uid(command.uid);
  if (uid == UserContexts::kKernel) return {};
  const auto* subject = find_subject(command);
  if (subject == nullptr) {
    return refuse(Status::BAD_PARAM, kUidSection, "a command of the kernel alone");
  }
  // With the number that no context has, drivers create objects for all contexts.
  if (uid == UserContexts::kShared && subject->verb == Verb::kMakes) return {};
  const auto& contexts = driver.resources().user_contexts();
  if (!contexts.contains(uid)) {
    return refuse(Status::BAD_PARAM, kUidSection, "no user context has this uid");
  }
  if (subject->verb != Verb::kMakes && subject->verb != Verb::kOpen) {
    const auto owner = contexts.owner(subject->kind, number_of(*subject, command));
    const bool shared =
        owner == UserContexts::kShared && subject->verb == Verb::kReads && !clears(command);
    if (owner != uid && !shared) {
      return refuse(Status::BAD_RESOURCE, kUidSection, "the object is not this context's");
    }
  }
  if (is_kernels(command)) {
    return refuse(Status::BAD_PARAM, kUidSection, "what only the kernel may ask for");
  }
  if (auto checked = check_raw_tx(contexts, command); !checked) return checked;
  const auto may_use = [&](Owned kind, std::uint32_t number) {
    const auto owner = contexts.owner(kind, number);
    // A queue keeps its doorbell page, and with it the page's context. Early Linux allocates the
    // pages of processes as its own, and the set in which their queues count.
    const bool given = kind == Owned::UAR || kind == Owned::Q_COUNTER;
    return owner == uid || owner == UserContexts::kShared ||
           (given && owner == UserContexts::kKernel);
  };
  if (!each_reference(command, may_use)) {
    return refuse(Status::BAD_RESOURCE, kUidSection, "it refers to what is not this context's");
  }
  return {};
}

void note_owner(DriverState& driver, const Command& command) {
  const auto* subject = find_subject(command);
  if (subject == nullptr) return;
  auto& contexts = driver.resources().user_contexts();
  if (subject->verb == Verb::kEnds) {
    contexts.forget(subject->kind, number_of(*subject, command));
  } else if (subject->verb == Verb::kMakes && Uid(command.uid) != UserContexts::kKernel) {
    contexts.set_owner(subject->kind, number_of(*subject, command), Uid(command.uid));
  }
}

}  // namespace softhca::connectx
