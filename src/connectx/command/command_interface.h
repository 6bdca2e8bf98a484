// The command interface (PRM 7.14): the queue of 32 slots in host memory, its doorbells, and the
// path of a posted command from its entry to its completion event.
//
//   doorbell      InitSegment notes the slots; run() takes them in the order of their doorbells
//   entry, input  CommandMailbox reads them; if that fails, the command ends in a delivery status
//   checks        opcode, start-up order, lengths: from the command table
//   handler       in *_commands.cc: its checks, its effect, or a Refusal
//   completion    output, then the ownership bit, then the completion event
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "connectx/base/numbers.h"
#include "connectx/command/command.h"
#include "connectx/command/command_mailbox.h"
#include "connectx/command/command_table.h"
#include "connectx/command/init_segment.h"
#include "hca/faults.h"
#include "util/work_budget.h"

namespace softhca::connectx {

class Device;

/// The command in progress. A long one takes several turns.
struct CommandUnderWay {
  unsigned slot = 0;
  util::Struct<QueueEntry> entry;
  /// The EQ to which completion events were mapped when the command began. The event is posted only
  /// if they are still mapped to it at the end.
  std::optional<Eqn> eqn;
  bool met_faults = false;          ///< the fault rules have seen it
  std::optional<Refusal> injected;  ///< how it ends, by a rule
  enum class Stage : std::uint8_t { kReceive, kExecute, kSend } stage = Stage::kReceive;
};

class CommandInterface {
 public:
  static constexpr unsigned kSlots = 1u << InitSegment::kLogQueueSize;

  explicit CommandInterface(Device& device);

  void read_init_segment(std::uint64_t offset, std::span<std::byte> out);
  /// Records the request, which run() executes.
  void write_init_segment(std::uint64_t offset, std::span<const std::byte> in);

  /// Executes posted commands until `work` is spent. True if commands are left.
  bool run(util::WorkBudget& work) { return due_ && run_due(work); }

  /// Called after a change of the fault rules: commands that one held back go on.
  void follow_fault_rules();

  struct Counters {
    std::uint64_t executed = 0;
    std::uint64_t refused = 0;
  };
  /// In the order of command_table().
  std::span<const Counters> counters() const { return counters_; }
  std::uint64_t unknown_opcodes() const { return unknown_opcodes_; }
  std::uint64_t undelivered() const { return undelivered_; }

 private:
  bool run_due(util::WorkBudget& work);
  bool go_on_with_all(util::WorkBudget& work);
  void apply_new_queue();
  void post_slot(unsigned slot);
  void take_slot();
  bool inject_fault();
  bool go_on(util::WorkBudget& work);
  bool dispatch(util::WorkBudget& work);
  void finish(DeliveryStatus status);
  void note_step(const CommandSpec* spec, const Command& command, const CommandResult& result);
  CommandResult execute(const CommandSpec* spec, const Command& command);
  void complete(CommandUnderWay& current, DeliveryStatus status);
  void post_event(unsigned slot);
  void report(const CommandSpec* spec, const Command& command, const Refusal& refusal);
  pcie::Iova slot_address(unsigned slot) const;

  Device& device_;
  InitSegment init_segment_;
  CommandMailbox mailbox_;
  std::optional<CommandUnderWay> current_;
  bool due_ = true;  ///< run() may have work

  bool new_queue_ = false;
  bool quiesce_ = false;
  /// Slots to execute, in order. Each slot appears at most once.
  std::array<std::uint8_t, kSlots> posted_{};
  unsigned posted_count_ = 0;
  std::uint32_t posted_mask_ = 0;
  std::array<hca::FaultId, kSlots> held_{};  ///< the rule that holds back the slot's command

  std::vector<Counters> counters_;
  std::uint64_t unknown_opcodes_ = 0;
  std::uint64_t undelivered_ = 0;
};

}  // namespace softhca::connectx
