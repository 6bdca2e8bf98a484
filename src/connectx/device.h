// A ConnectX-4 (PCI 15b3:1013), one port, as a PCIe function.
//
// It routes register accesses (BAR0) to the initialization segment, the commands and the doorbells.
// A register access is only noted. run() processes commands, WQEs and packets, so that a vCPU never
// waits for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "connectx/base/bar_layout.h"
#include "connectx/base/health.h"
#include "connectx/base/limits.h"
#include "connectx/base/model.h"
#include "connectx/base/numbers.h"
#include "connectx/function/internal_spaces.h"
#include "connectx/function/vendor_capability.h"
#include "connectx/objects.h"
#include "connectx/queue/mapped_queue.h"
#include "connectx/queue/work_queue.h"
#include "fabric/port.h"
#include "fabric/trace_port.h"
#include "pcie/function.h"
#include "rdma/types.h"
#include "util/clock.h"
#include "util/notes.h"

namespace softhca::connectx {

class Capabilities;
class CommandInterface;
class PageManager;
class SharedDoorbells;

/// The properties that distinguish one card from another.
struct DeviceOptions {
  Model model{};
  std::string name = "connectx0";  ///< for logs
  rdma::Mac mac{};                 ///< permanent address
  std::uint64_t node_guid = 0;     ///< must not be 0, unique on the fabric
  std::uint16_t msix_vectors = 32;
  /// True if the creator of the device must call share_doorbells().
  bool share_doorbells = false;
  Limits limits{};                    ///< resource limits; none above the default
  util::Duration ack_timeout_min{0};  ///< rdma::PortOptions
  /// The clock of the free-running timer and the health counter. Engines use the time of run().
  std::function<util::Time()> clock = util::monotonic_now;
};

class Device final : public pcie::Function, private fabric::Receiver {
 public:
  /// Minimum work that run() charges for each packet that it sends.
  static const std::int64_t kPacketWork;

  Device(DeviceOptions options, fabric::Port& port);
  ~Device() override;

  /// A reduced run() for turns in which nothing can be sent and a driver waits. It executes
  /// commands and the driver's own key changes, and reports their completions.
  void run_commands(util::Time now);

  // The parts, in the order in which a driver uses them. They live until the next reset.
  const DeviceOptions& options() const { return options_; }
  CommandInterface& commands() { return *commands_; }
  Capabilities& capabilities() { return *capabilities_; }
  PageManager& pages() { return *pages_; }
  /// The limits that commands enforce.
  const Limits& limits() const;
  Resources& resources() { return *objects_->resources; }
  UserMemories& user_memories() { return *objects_->user_memories; }
  /// Maps queues in host memory.
  QueueMapper queue_mapper();
  WorkQueueMaker work_queue_maker();
  MemoryKeys& memory_keys() { return *objects_->memory_keys; }
  EventQueues& event_queues() { return *objects_->event_queues; }
  CompletionQueues& completion_queues() { return *objects_->completion_queues; }
  NetworkPort& network_port() { return *objects_->network_port; }
  Vport& vport() { return *objects_->vport; }
  PortRegisters& port_registers() { return *objects_->port_registers; }
  Rdma& rdma() { return *objects_->rdma; }
  Ethernet& ethernet() { return *objects_->ethernet; }
  util::Time now() const { return options_.clock(); }
  Health& health() { return health_; }
  util::Notes& notes() { return notes_; }
  /// Calls rdma::Transport::set_ack_patience(). A reset restores the default.
  void set_ack_patience(unsigned timeouts);
  /// Makes the doorbell pages of processes memory that the guest maps, so that their doorbells are
  /// no messages. Call it once, before a host connects. Fails if the machine is out of memory.
  util::Result<void> share_doorbells();
  /// Null if all doorbells are messages.
  SharedDoorbells* shared_doorbells() { return shared_doorbells_.get(); }
  std::optional<pcie::SharedBarMemory> shared_memory(unsigned bar) const override;
  /// Null if the model has none.
  Companion* companion() { return companion_.get(); }

  /// Drops cached flows and BlueFlame buffers. Called for a command, after which frames may take
  /// other paths and numbers may belong to other queues.
  void invalidate_flows();
  /// Starts or stops copying frames for sniffers. Called after a command.
  void look_for_sniffers();
  /// Drops every object that a driver created: TEARDOWN_HCA, fast teardown. Pages and capabilities
  /// stay. Dropped objects do nothing more, and the device has new ones. If there were many, they
  /// are destroyed over several turns.
  void drop_objects();
  /// Drops all objects, pages and settings of a driver: DISABLE_HCA, a new command queue.
  void forget_driver();
  /// Destroys dropped objects until work() is spent. True if all are gone. No command is executed
  /// before that, so a driver that drops objects repeatedly cannot accumulate them.
  bool clear_remains();
  /// True if there are dropped objects. `initializing` is then set.
  bool has_remains() const { return remains_ != nullptr; }
  /// Charges the work that users of memory keys have recorded (rdma::KeyTable::add_work).
  void charge_noted();

 private:
  util::Time run_device(util::Time now) override;
  util::Time run_all(util::Time now);
  void read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override;
  void write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override;
  void inspect_device(util::Inspection& out) const override;
  void reset_device() override;
  void trace_device(util::Trace& trace) override;
  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame& frame, std::uint32_t domain) override;
  bool handle_no_memory() override { return fail(); }
  bool takes_trains() const override { return true; }
  bool takes_whole(const wire::Frame& train);
  void receive(const wire::Frame& frame);
  void receive_looped(const wire::Frame& frame, TransportDomain domain);

  void make_objects();

  void write_first_pages(std::uint64_t offset, std::span<const std::byte> in);
  void write_page(std::uint64_t offset, std::span<const std::byte> in);

  // uar.cc
  void write_uar(UarPage uar, std::uint32_t offset, std::span<const std::byte> in);
  void write_uar_dwords(UarPage uar, std::uint32_t offset, std::span<const std::byte> in);
  void arm_cq(UarPage uar, std::uint32_t arm_dword, Cqn cqn);
  void update_eq(UarPage uar, std::uint32_t dword, bool arm);
  void ring_send_doorbell(UarPage uar, std::uint32_t number);
  void note_send_doorbell(UarPage uar, std::uint32_t number);
  void write_blue_flame(UarPage uar, std::uint32_t offset, std::span<const std::byte> in);
  bool run_send_doorbells();
  util::Time hear_doorbells(util::Time now);
  bool hear_page(std::size_t index);
  void hear_send(UarPage uar, std::uint32_t number);

  DeviceOptions options_;
  util::Notes notes_;
  Health health_;
  InternalSpaces internal_spaces_;
  VendorCapability vendor_capability_{internal_spaces_};
  std::unique_ptr<Companion> companion_;
  fabric::Port* port_;
  std::unique_ptr<fabric::TracePort> trace_port_;  ///< wraps the port; null: no trace
  std::unique_ptr<Capabilities> capabilities_;
  std::unique_ptr<PageManager> pages_;
  std::unique_ptr<SharedDoorbells> shared_doorbells_;  ///< outlives the queues on its pages
  std::unique_ptr<Objects> objects_;
  /// Dropped objects that are not destroyed yet.
  std::unique_ptr<Objects> remains_;
  std::unique_ptr<CommandInterface> commands_;
  /// First halves of CQ doorbells that are written as two dwords, by doorbell page.
  std::vector<std::optional<std::uint32_t>> half_cq_doorbells_;
  /// Identifies a send doorbell.
  static constexpr std::uint64_t doorbell_key(UarPage uar, std::uint32_t number) {
    return std::uint64_t{uar.value()} << 32 | number;  // no format: two numbers in one
  }

  /// Number of doorbells that arrived as messages since the device was created: to pages of the
  /// kernel, and to pages that `doorbells=mapped` shares.
  std::uint64_t kernel_doorbells_ = 0;
  std::uint64_t mapped_doorbells_ = 0;
  static constexpr std::uint64_t kNoDoorbell = UINT64_MAX;
  std::uint64_t last_rung_ = kNoDoorbell;  ///< the last doorbell since the last run()
  /// Send doorbells of SQs since the last run(), each number once.
  std::vector<std::uint32_t> rung_;
  std::vector<std::uint8_t> is_rung_;  ///< by number: 1 if it is in rung_
  /// True if other parts than RDMA may have work: a register was written, or an Ethernet frame has
  /// arrived.
  bool attention_ = true;
  util::Time quiet_until_{};      ///< until then, they have no work unless attention_ is set
  util::Time others_next_{};      ///< when run() must be called for them
  bool sniffs_received_ = false;  ///< Ethernet::sniffs_received() as of the last command
  bool overdrawn_ = false;        ///< arriving frames have cost more than kDebtMax allows
  bool rdma_first_ = true;        ///< in the next run(), RDMA runs before Ethernet
};

}  // namespace softhca::connectx
