// An SDXI function (SDXI 1.0) as a PCIe function: class 0x120100, registers in BAR0, doorbells in
// BAR2.
//
// A register access only notes work or changes a state; run() works on the contexts. Functions that
// reach each other's memory share a FunctionGroup, and one loop runs them all.
#pragma once

#include <memory>

#include "pcie/function.h"
#include "sdxi/contexts.h"
#include "sdxi/error_log.h"
#include "sdxi/faults.h"
#include "sdxi/function_state.h"
#include "sdxi/group.h"
#include "sdxi/keys.h"
#include "sdxi/mailboxes.h"
#include "sdxi/mmio.h"
#include "sdxi/options.h"
#include "sdxi/own_interrupt.h"
#include "sdxi/registers.h"
#include "util/trace.h"

namespace softhca::sdxi {

class Device final : public pcie::Function, private GroupMember {
 public:
  static constexpr unsigned kRegisterBar = 0;
  static constexpr unsigned kDoorbellBar = 2;
  static constexpr std::uint64_t kRegisterBarSize = 512 << 10;
  static constexpr std::uint32_t kMsixTable = 0x40000;
  static constexpr std::uint32_t kMsixPba = 0x48000;
  static constexpr std::uint16_t kVfsMax = 4096;

  /// A PF. `group` outlives the device.
  Device(const DeviceOptions& options, FunctionGroup& group);
  /// The next VF of `pf`, which outlives it.
  Device(const DeviceOptions& options, FunctionGroup& group, Device& pf);
  ~Device() override;

  // For tools and tests.
  const DeviceOptions& options() const { return options_; }
  const Registers& registers() const { return registers_; }
  const Contexts& contexts() const { return contexts_; }
  /// MMIO_CAP0.sfunc.
  std::uint16_t sfunc() const override { return sfunc_; }
  bool is_vf() const override { return pf_ != nullptr; }

 private:
  Device(const DeviceOptions& options, FunctionGroup& group, Device* pf);

  // pcie::Function
  util::Time run_device(util::Time now) override;
  void read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override;
  void write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override;
  void inspect_device(util::Inspection& out) const override;
  void reset_device() override;
  void trace_device(util::Trace& trace) override { trace.set_modules(&trace_names_); }

  // GroupMember
  Checked<AddressSpace> admit_memory(const RemoteRequest& request) override;
  Checked<InterruptTarget> admit_interrupt(const RemoteRequest& request) override;
  ContextControl& context_control() override { return contexts_; }
  std::span<std::byte> send_mailbox(std::uint16_t peer) override;
  void message_arrived(std::uint16_t peer) override { mailboxes_.message_arrived(peer); }
  void message_taken(std::uint16_t peer) override { mailboxes_.message_taken(peer); }
  void set_probe(bool probe) override;
  bool probe() const override;
  bool probe_busy() const override;
  std::uint32_t group_id() const override;
  const std::string& group_name() const override {
    return pf_ == nullptr ? options_.group : pf_->group_name();
  }

  DeviceOptions options_;
  FunctionGroup& group_;
  Device* pf_;
  std::uint16_t sfunc_;
  std::uint16_t vf_num_;
  Registers registers_;
  FunctionMemory memory_;
  OwnInterrupt own_interrupt_;
  ErrorLog log_;
  ContextTables tables_;
  AccessKeys access_keys_;
  ReceiverKeys receiver_keys_;
  FunctionState state_;
  Contexts contexts_;
  Mailboxes mailboxes_;
  Mmio mmio_;
  util::TraceNames trace_names_;
};

}  // namespace softhca::sdxi
