// A JingZhao HCA with one port, RoCE or InfiniBand, as a PCIe function.
//
// Register accesses go to the HCR (BAR0) or to the queues of a doorbell (BAR2). An access only
// records its effect. Commands, WQEs and packets are processed in run(), so that a vCPU never waits
// for them. The exception is a command whose driver does not wait for it (ProfileRules).
#pragma once

#include <cstdint>
#include <memory>

#include "fabric/port.h"
#include "jingzhao/command_table.h"
#include "jingzhao/doorbell_pages.h"
#include "jingzhao/fault_injection.h"
#include "jingzhao/hcr.h"
#include "jingzhao/icm.h"
#include "jingzhao/infiniband_port.h"
#include "jingzhao/link_port.h"
#include "jingzhao/objects.h"
#include "jingzhao/options.h"
#include "pcie/function.h"
#include "util/notes.h"

namespace softhca::jingzhao {

class Device final : public pcie::Function, private fabric::Receiver {
 public:
  /// Register layout (JingZhao tables 3-1-1, 3-1-2; MSI-X: docs/jingzhao.md).
  static constexpr unsigned kHcrBar = 0;
  static constexpr unsigned kUarBar = 2;
  static constexpr std::uint64_t kHcrBarSize = 1 << 20;
  static constexpr std::uint64_t kUarBarSize = 8 << 20;
  static constexpr std::uint64_t kResetOffset = 0xF0010;
  static constexpr std::uint16_t kVectors = 64;

  Device(DeviceOptions options, fabric::Port& port);
  ~Device() override;

  // For command handlers.
  const DeviceOptions& options() const { return options_; }
  const ProfileRules& rules() const { return rules_; }
  /// The ICM of a group of tables (JingZhao 3.2.2.1).
  Icm& icm(IcmGroup group) { return group == IcmGroup::QUEUE_CONTEXTS ? contexts_ : memory_; }
  bool initialized() const { return objects_ != nullptr; }
  /// @pre initialized()
  Objects& objects() { return *objects_; }
  /// Begins to make the objects. INIT_HCA ends when all are made, over several turns.
  void init(const Tables& tables);
  /// Drops all objects and mappings. Dropped objects do nothing more. Later turns destroy them.
  void close();
  /// These ranges of the ICM were unmapped or remapped: drops their cached entries without a
  /// write-back. @pre the ranges are merged
  void forget_icm(IcmGroup group, std::span<const Icm::Range> ranges);
  /// [virt, virt + size) of the ICM of queue contexts was unmapped: fails the QPs that need it.
  void lose_contexts(std::uint64_t virt, std::uint64_t size);
  /// Charges work of a command beyond its fixed cost (util::WorkBudget).
  void charge(std::int64_t units) { work().charge(units); }
  util::Notes& notes() { return notes_; }
  bool link_up() const { return port_->link_up(); }
  FaultInjection& faults() { return faults_; }
  /// Null on an Ethernet link.
  InfinibandPort* infiniband() { return infiniband_; }

 private:
  util::Time run_device(util::Time now) override;
  void read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override;
  void write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override;
  void inspect_device(util::Inspection& out) const override;
  void reset_device() override;
  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame& frame, std::uint32_t mark) override;
  bool handle_no_memory() override { return fail(); }
  bool takes_trains() const override { return true; }
  void handle_cost(std::int64_t units) override { charge(units); }
  void receive(const wire::Frame& frame);
  void discard(const wire::Frame& frame);
  void charge_received(MemoryKeys& keys);

  bool is_hcr(std::uint64_t offset) const {
    return offset >= rules_.hcr_offset && offset < rules_.hcr_offset + Hcr::kSize;
  }
  std::uint32_t read_dword(std::uint64_t offset) const;
  void write_hcr_dwords(std::uint64_t offset, std::span<const std::byte> in);
  void write_hcr_bar(std::uint64_t offset, std::uint32_t value);
  Status start_command();
  void run_command(util::WorkBudget& for_init);
  void finish_command();
  std::unique_ptr<LinkPort> make_port(fabric::Port& wire);
  CommandResult execute(const CommandInfo& info, Command& command, std::span<std::byte> out);
  void note_link();
  void handle_link_change();

  DeviceOptions options_;
  const ProfileRules& rules_;
  util::Notes notes_;
  FaultInjection faults_{*this};
  InfinibandPort* infiniband_ = nullptr;  ///< port_ if the link is InfiniBand, set by make_port();
                                          ///< else null
  std::unique_ptr<LinkPort> port_;
  Icm contexts_;
  Icm memory_;
  Remains remains_;
  Hcr hcr_;
  std::unique_ptr<Objects> objects_;
  std::unique_ptr<Objects> making_;  ///< of an INIT_HCA that has not ended
  /// The keys that arriving frames use. Null before INIT_HCA, and while frames are dropped because
  /// they have cost more than kDebtMax allows.
  MemoryKeys* receiving_ = nullptr;
  bool reset_requested_ = false;
  DoorbellPages doorbell_pages_;
  bool was_up_ = false;
  struct {
    std::uint64_t executed = 0;
    std::uint64_t refused = 0;
  } commands_;
};

}  // namespace softhca::jingzhao
