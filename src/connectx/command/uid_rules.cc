#include "connectx/command/uid_rules.h"

#include <algorithm>
#include <array>

#include "connectx/base/resources.h"
#include "connectx/base/user_contexts.h"
#include "connectx/command/uid_references.h"
#include "connectx/driver_state.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;
using Op = command_opcode;

constexpr std::string_view kUidSection = "mlx5 driver interface: DevX";

enum class Role : std::uint8_t { kMakes, kEnds, kChanges, kReads, kOpen };

struct UidRule {
  Op opcode;
  Role role;
  Owned kind;
  std::uint32_t (*number)(const Command& command);  ///< the object's number; null for kOpen
};

template <class In, auto Field>
std::uint32_t number_in(const Command& command) {
  return command.input<In>().get(Field);
}

template <class Out, auto Field>
std::uint32_t number_out(const Command& command) {
  return command.output<Out>().get(Field);
}

constexpr auto kUidRules = std::to_array<UidRule>({
#define SUBJECT(role, opcode, name, kind, field) \
  {Op::opcode, Role::role, Owned::kind, number_in<name##_in, name##_in::field>},
#define MAKES(opcode, name, kind, field) \
  {Op::opcode, Role::kMakes, Owned::kind, number_out<name##_out, name##_out::field>},
#define ENDS(opcode, name, kind, field) SUBJECT(kEnds, opcode, name, kind, field)
#define CHANGES(opcode, name, kind, field) SUBJECT(kChanges, opcode, name, kind, field)
#define READS(opcode, name, kind, field) SUBJECT(kReads, opcode, name, kind, field)
#define OPEN(opcode) {Op::opcode, Role::kOpen, Owned{}, nullptr},
#include "connectx/command/uid_list.inc"
#undef SUBJECT
});

static_assert(std::ranges::adjacent_find(kUidRules, std::ranges::greater_equal(),
                                         &UidRule::opcode) == kUidRules.end());

const UidRule* find_rule(std::uint16_t opcode) {
  const auto at =
      std::ranges::lower_bound(kUidRules, static_cast<Op>(opcode), {}, &UidRule::opcode);
  return at != kUidRules.end() && at->opcode == static_cast<Op>(opcode) ? &*at : nullptr;
}

bool is_subject(Role role) {
  return role == Role::kEnds || role == Role::kChanges || role == Role::kReads;
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
  const auto* rule = find_rule(command.opcode);
  if (rule == nullptr) {
    return refuse(Status::BAD_PARAM, kUidSection, "a command of the kernel alone");
  }
  // With the number that no context has, drivers create objects for all contexts.
  if (uid == UserContexts::kShared && rule->role == Role::kMakes) return {};
  const auto& contexts = driver.resources().user_contexts();
  if (!contexts.contains(uid)) {
    return refuse(Status::BAD_PARAM, kUidSection, "no user context has this uid");
  }
  if (is_subject(rule->role)) {
    const auto owner = contexts.owner(rule->kind, rule->number(command));
    const bool shared =
        owner == UserContexts::kShared && rule->role == Role::kReads && !clears(command);
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
    const bool given = kind == Owned::kUar || kind == Owned::kQCounter;
    return owner == uid || owner == UserContexts::kShared ||
           (given && owner == UserContexts::kKernel);
  };
  if (!each_reference(command, may_use)) {
    return refuse(Status::BAD_RESOURCE, kUidSection, "it refers to what is not this context's");
  }
  return {};
}

void note_owner(DriverState& driver, const Command& command) {
  const auto* rule = find_rule(command.opcode);
  if (rule == nullptr) return;
  auto& contexts = driver.resources().user_contexts();
  if (rule->role == Role::kEnds) {
    contexts.forget(rule->kind, rule->number(command));
  } else if (rule->role == Role::kMakes && Uid(command.uid) != UserContexts::kKernel) {
    contexts.set_owner(rule->kind, rule->number(command), Uid(command.uid));
  }
}

}  // namespace softhca::connectx
