#include "connectx/command/command_interface.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "connectx/command/uid_rules.h"
#include "connectx/device.h"
#include "connectx/event/event_queue.h"
#include "util/bits.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using spec::connectx::event_type;
using InputHeader = spec::connectx::command_input_header;
using OutputHeader = spec::connectx::command_output_header;

/// Cost of a command (util::WorkBudget), without the blocks of its input and output and the work
/// that its handler charges.
constexpr std::int64_t kCommandWork = 3000;

}  // namespace

CommandInterface::CommandInterface(Device& device)
    : device_(device),
      init_segment_(device.options().model),
      mailbox_(device.dma()),
      counters_(command_table().size()) {}

pcie::Iova CommandInterface::slot_address(unsigned slot) const {
  return init_segment_.queue_address() + (std::uint64_t{slot} << InitSegment::kLogStride);
}

void CommandInterface::read_init_segment(std::uint64_t offset, std::span<std::byte> out) {
  init_segment_.read(offset, out,
                     {.now = device_.now(),
                      .health = device_.health(),
                      .initializing = device_.driver().has_remains()});
}

void CommandInterface::write_init_segment(std::uint64_t offset, std::span<const std::byte> in) {
  const auto effects = init_segment_.write(offset, in);
  due_ = true;
  if (effects.new_queue) {
    // run() handles the new queue. The address write must not cause DMA, because some drivers
    // enable bus mastering after it.
    new_queue_ = true;
    posted_count_ = 0;
    posted_mask_ = 0;
  }
  if (effects.nic_interface_changed) {
    quiesce_ = init_segment_.nic_interface() != InitSegment::NicInterface::FULL_DRIVER;
  }
  if (effects.reset) {
    device_.notes().info("software reset");
    device_.health().clear();
    posted_count_ = 0;
    posted_mask_ = 0;
    held_.fill(0);
    quiesce_ = true;
  }
  if (auto* trace = device_.trace(); trace != nullptr && effects.doorbells != 0) {
    trace->note(util::TraceStep::kCommandDoorbell, {}, {{"vector", effects.doorbells}});
  }
  // One write may ring several slots (PRM 7.14.1).
  for (auto bells = effects.doorbells; bells != 0; bells &= bells - 1) {
    post_slot(static_cast<unsigned>(std::countr_zero(bells)));
  }
}

/// Queues a slot. One that already waits is not queued twice.
void CommandInterface::post_slot(unsigned slot) {
  if (util::has_bit(posted_mask_, slot)) return;
  posted_[posted_count_++] = static_cast<std::uint8_t>(slot);
  posted_mask_ |= 1u << slot;
  held_[slot] = 0;
}

void CommandInterface::follow_fault_rules() {
  for (unsigned slot = 0; slot != kSlots; ++slot) {
    if (held_[slot] != 0 && !device_.faults().hook().holds(held_[slot])) post_slot(slot);
  }
  due_ = true;
}

/// Applies the fault rules to the current command, whose input is complete. True if it does not go
/// on.
bool CommandInterface::inject_fault() {
  auto& current = *current_;
  const auto& faults = device_.faults().hook();
  const util::View<InputHeader> header(mailbox_.input().whole());
  const auto opcode = static_cast<spec::connectx::command_opcode>(header.get(InputHeader::opcode));
  hca::FaultEvent event{.action = hca::FaultAction::kHangCommand, .opcode = to_string(opcode)};
  if (const auto* rule = faults.take(event)) {
    held_[current.slot] = rule->id;
    return true;
  }
  for (const auto action : {hca::FaultAction::kInternalError, hca::FaultAction::kRemove}) {
    event.action = action;
    if (const auto* rule = faults.take(event)) {
      device_.faults().break_soon(*rule);
      return true;
    }
  }
  event.action = hca::FaultAction::kFailCommand;
  if (const auto* rule = faults.take(event)) {
    current.injected = refuse(Status::INTERNAL_ERR, "PRM Table 128",
                              "a fault rule of the user makes the command fail")
                           .value();
    current.injected->status = static_cast<Status>(rule->rule.status);
    if (const auto syndrome = rule->rule.syndrome) current.injected->syndrome = *syndrome;
  }
  return false;
}

void CommandInterface::apply_new_queue() {
  device_.notes().info("a driver begins with its command queue at {:#x}",
                       init_segment_.queue_address());
  new_queue_ = false;
  quiesce_ = false;
  current_.reset();
  held_.fill(0);
  // If the last driver ended without teardown (crash, kexec), its objects still exist.
  device_.driver().forget();
}

bool CommandInterface::run_due(util::WorkBudget& work) {
  if (new_queue_) apply_new_queue();
  if (quiesce_) {
    // After a fast teardown, or if the driver gave up, the device must not access host memory.
    quiesce_ = false;
    current_.reset();
    device_.driver().drop_objects();
  }
  due_ = go_on_with_all(work);
  return due_;
}

/// Executes commands until none is left, or `work` is spent. False if none is left.
bool CommandInterface::go_on_with_all(util::WorkBudget& work) {
  // Before the next command, free the memory of a long input and the objects that the last command
  // dropped.
  while (device_.driver().clear_remains() && (current_ || mailbox_.release(work))) {
    if (device_.faults().stops_commands()) return false;
    if (!current_ && posted_count_ == 0) return false;
    if (work.spent()) break;
    if (!current_) {
      work.charge(kCommandWork);
      take_slot();
      continue;
    }
    if (!go_on(work)) break;
    current_.reset();
    device_.charge_noted();
  }
  return true;
}

/// Makes the oldest posted slot the current command, if the hardware owns its entry.
void CommandInterface::take_slot() {
  const unsigned slot = posted_[0];
  std::copy(posted_.begin() + 1, posted_.begin() + posted_count_, posted_.begin());
  --posted_count_;
  posted_mask_ &= ~(1u << slot);

  if (auto* trace = device_.trace()) {
    trace->note(util::TraceStep::kCommandBegin, {},
                {{"slot", slot}, {"entry", slot_address(slot)}});
  }
  auto& taken = current_.emplace();
  taken.slot = slot;
  const auto bytes = taken.entry.bytes();
  if (!init_segment_.has_queue() || !device_.dma().read(slot_address(slot), bytes)) {
    device_.notes().warn("command slot {} is not readable at {:#x}", slot, slot_address(slot));
    return current_.reset();
  }
  if (taken.entry.get(QueueEntry::ownership) == 0) {
    device_.notes().debug("doorbell for slot {}, which software owns", slot);
    return current_.reset();
  }
  taken.eqn = device_.driver().event_queues().mapped(event_type::COMMAND_COMPLETION);
  if (const auto status = mailbox_.start(taken.entry); status != DeliveryStatus::OK) {
    finish(status);
    current_.reset();
  }
}

/// Continues the current command. False if it needs another turn.
bool CommandInterface::go_on(util::WorkBudget& work) {
  auto& current = *current_;
  if (current.stage == CommandUnderWay::Stage::kReceive) {
    const auto status = mailbox_.receive(work);
    if (!status) return false;
    if (*status != DeliveryStatus::OK) {
      finish(*status);
      return true;
    }
    current.stage = CommandUnderWay::Stage::kExecute;
  }
  if (current.stage == CommandUnderWay::Stage::kExecute) {
    if (device_.faults().hook() && !std::exchange(current.met_faults, true) && inject_fault())
      return true;
    if (!dispatch(work)) return false;
    current.stage = CommandUnderWay::Stage::kSend;
  }
  const auto sent = mailbox_.send(current.entry, work);
  if (!sent) return false;
  finish(*sent);
  return true;
}

void CommandInterface::finish(DeliveryStatus status) {
  auto& current = *current_;
  complete(current, status);
  if (auto* trace = device_.trace()) {
    trace->note(util::TraceStep::kCommandEnd, {},
                {{"slot", current.slot}, {"status", static_cast<std::uint8_t>(status)}});
  }
  // PRM 12.6: a command that creates or destroys the EQ of command completions posts no event.
  const auto eqn = device_.driver().event_queues().mapped(event_type::COMMAND_COMPLETION);
  if (current.eqn && current.eqn == eqn) post_event(current.slot);
}

/// Executes the current command. False if it needs another turn.
bool CommandInterface::dispatch(util::WorkBudget& work) {
  using View = util::View<InputHeader>;
  const auto& input = mailbox_.input();
  const auto sent = input.size();
  const auto* spec =
      find_command(static_cast<std::uint16_t>(View(input.whole()).get(InputHeader::opcode)));
  if (spec != nullptr && sent >= spec->min_input) {
    const auto size = std::max<std::size_t>(sent, spec->input);
    mailbox_.extend_input((size + spec->entry - 1) / spec->entry * spec->entry);
  }
  const View header(input.whole());
  bool unfinished = false;
  const Command command{.opcode = static_cast<std::uint16_t>(header.get(InputHeader::opcode)),
                        .op_mod = static_cast<std::uint16_t>(header.get(InputHeader::op_mod)),
                        .uid = static_cast<std::uint16_t>(header.get(InputHeader::uid)),
                        .sent = sent,
                        .in = input.whole(),
                        .out = mailbox_.output(),
                        .all = input,
                        .work = work,
                        .unfinished = unfinished};
  const auto& injected = current_->injected;
  const auto result = injected ? CommandResult(tl::unexpected(*injected)) : execute(spec, command);
  if (unfinished) return false;
  note_step(spec, command, result);
  if (spec == nullptr) {
    ++unknown_opcodes_;
  } else {
    auto& counters = counters_[static_cast<std::size_t>(spec - command_table().data())];
    ++(result ? counters.executed : counters.refused);
  }
  if (result) {
    device_.notes().debug("{} (op_mod {:#x}) done", spec->name(), command.op_mod);
    if (auto* companion = device_.companion()) {
      companion->handle_command(spec->opcode, command.in, command.out);
    }
    return true;
  }
  std::fill(command.out.begin(), command.out.end(), std::byte{0});
  const util::MutableView<OutputHeader> out(command.out);
  out.set(OutputHeader::status, static_cast<std::uint8_t>(result.error().status));
  out.set(OutputHeader::syndrome, result.error().syndrome);
  report(spec, command, result.error());
  return true;
}

void CommandInterface::note_step(const CommandSpec* spec, const Command& command,
                                 const CommandResult& result) {
  auto* trace = device_.trace();
  if (trace == nullptr) return;
  const auto status = result ? Status::OK : result.error().status;
  trace->note(util::TraceStep::kCommand, spec != nullptr ? spec->name() : "unknown opcode",
              {{"opcode", command.opcode},
               {"op_mod", command.op_mod},
               {"status", static_cast<std::uint8_t>(status)}});
}

CommandResult CommandInterface::execute(const CommandSpec* spec, const Command& command) {
  if (spec == nullptr) return refuse(Status::BAD_OP, "PRM Table 127", "unknown opcode");
  if (spec->handler == nullptr) return tl::unexpected(spec->refusal());
  const auto state = device_.driver().state();
  if (!spec->allowed_in(state)) {
    switch (state) {
      case HcaState::kDisabled:
        return refuse(Status::BAD_SYS_STATE, "PRM 8.2", "not before ENABLE_HCA");
      case HcaState::kEnabled:
        return refuse(Status::BAD_SYS_STATE, "PRM 8.2", "not before INIT_HCA");
      case HcaState::kInitialized:
        return refuse(Status::BAD_SYS_STATE, "PRM 8.2", "not after INIT_HCA");
    }
  }
  if (command.op_mod != 0 && !spec->reads_op_mod) {
    return refuse(Status::BAD_OP, "PRM Table 128", "op_mod of a command that knows 0 alone");
  }
  if (command.in.size() < spec->min_input) {
    return refuse(Status::BAD_INPUT_LEN, "PRM 12.2", "input shorter than the command");
  }
  if (command.out.size() < spec->min_output) {
    return refuse(Status::BAD_OUTPUT_LEN, "PRM 12.2", "output shorter than the command's");
  }
  if (auto checked = check_uid(device_.driver(), command); !checked) return checked;
  // This is called for every command: nearly all change the paths of frames, and commands are rare.
  device_.invalidate_flows();
  auto result = spec->handler(device_.driver(), command);
  device_.look_for_sniffers();
  if (result && !command.unfinished) note_owner(device_.driver(), command);
  return result;
}

void CommandInterface::complete(CommandUnderWay& current, DeliveryStatus status) {
  const auto slot = current.slot;
  const util::MutableView<QueueEntry> entry = current.entry;
  if (status != DeliveryStatus::OK) {
    ++undelivered_;
    device_.notes().warn("command in slot {} not delivered: {} ({:#04x}, PRM Table 96)", slot,
                         to_string(status), static_cast<unsigned>(status));
  }
  entry.set(QueueEntry::status, static_cast<std::uint8_t>(status));
  entry.set(QueueEntry::ownership, 0);
  entry.set(QueueEntry::signature, 0);
  entry.set(QueueEntry::signature, command_signature(entry.bytes()));

  const auto at = slot_address(slot);
  const auto output = entry.sub(QueueEntry::command_output_inline_data);
  if (status == DeliveryStatus::OK) {
    const auto length = std::min<std::size_t>(output.size(), mailbox_.output().size());
    (void)device_.dma().write(at + QueueEntry::command_output_inline_data.kOffset,
                              output.first(length));
  }
  // Software polls the ownership bit, so the dword with it is written last (PRM 7.14.1).
  const auto last = entry.bytes().last(sizeof(std::uint32_t));
  const auto last_at = at + QueueEntry::ownership.kOffset;
  if (auto* host = device_.dma().translate(last_at, last.size(), pcie::DmaAccess::kWrite)) {
    std::uint32_t raw;
    std::memcpy(&raw, last.data(), sizeof raw);
    // Slots are 64-byte aligned in a 4 KiB page, so this is an aligned store.
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(host), raw, __ATOMIC_RELEASE);
  } else {
    (void)device_.dma().write(last_at, last);
  }
}

void CommandInterface::post_event(unsigned slot) {
  EventData data{};
  using Data = spec::connectx::event_data_command_completion;
  util::MutableView<Data>(data).set(Data::command_completion_vector, 1u << slot);
  device_.driver().event_queues().post(event_type::COMMAND_COMPLETION, 0, data);
}

void CommandInterface::report(const CommandSpec* spec, const Command& command,
                              const Refusal& refusal) {
  const auto name =
      spec != nullptr ? std::string(spec->name()) : fmt::format("command {:#06x}", command.opcode);
  device_.notes().warn("{} (op_mod {:#x}) refused: {} ({:#04x}), syndrome {:#010x}: {} ({})", name,
                       command.op_mod, to_string(refusal.status),
                       static_cast<unsigned>(refusal.status), refusal.syndrome, refusal.text,
                       refusal.section);
}

}  // namespace softhca::connectx
