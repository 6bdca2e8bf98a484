// A ConnectX-4 (PCI 15b3:1013), one port, as a PCIe function.
//
// Registers arrive here (BAR0), are sorted into initialization segment, commands and doorbells, and
// go to the part that the manual's chapter names. Nothing but noting happens during a register
// access: commands, WQEs and packets are worked on in run(), so that a vCPU never waits for them.
#pragma once

#include <array>
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

/// What distinguishes one card from another.
struct DeviceOptions {
  Model model{};
  std::string name = "connectx0";  ///< for logs
  rdma::Mac mac{};                 ///< permanent address
  std::uint64_t node_guid = 0;     ///< must not be 0, unique on the fabric
  std::uint16_t msix_vectors = 32;
  /// For who makes the device: share_doorbells() is wanted.
  bool share_doorbells = false;
  Limits limits{};                    ///< how much of everything; not more than the default
  util::Duration ack_timeout_min{0};  ///< rdma::PortOptions
  /// The time, for the free-running timer and the health counter. Engines take time by run() alone.
  std::function<util::Time()> clock = util::monotonic_now;
};

class Device final : public pcie::Function, private fabric::Receiver {
 public:
  /// Units of work that run() pays for each packet that it sends, at least.
  static const std::int64_t kPacketWork;

  Device(DeviceOptions options, fabric::Port& port);
  ~Device() override;

  /// run() for a driver that waits for a command, while nothing can be sent: only commands, and the
  /// completions that they make.
  void run_commands(util::Time now);

  // The parts, in the order in which a driver meets them. They live until the next reset.
  const DeviceOptions& options() const { return options_; }
  CommandInterface& commands() { return *commands_; }
  Capabilities& capabilities() { return *capabilities_; }
  PageManager& pages() { return *pages_; }
  /// What the commands hold drivers to.
  const Limits& limits() const;
  Resources& resources() { return *objects_->resources; }
  UserMemories& user_memories() { return *objects_->user_memories; }
  /// Makes queues in the memory of the host.
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
  /// rdma::Transport, until the next reset.
  void set_ack_patience(unsigned timeouts);
  /// The doorbell pages of processes are memory that the guest maps, and no messages. Once, before
  /// a host comes. Fails if the machine has no memory for it.
  util::Result<void> share_doorbells();
  /// Null if they are messages.
  SharedDoorbells* shared_doorbells() { return shared_doorbells_.get(); }
  std::optional<pcie::SharedBarMemory> shared_memory(unsigned bar) const override;
  /// Null if the model has none.
  Companion* companion() { return companion_.get(); }

  /// A command is executed, after which frames may go other ways, and numbers be those of other
  /// queues.
  void forget_ways();
  /// One was executed, after which frames may be copied that were not, or the other way round.
  void look_for_sniffers();
  /// Drops every object that a driver made: TEARDOWN_HCA, fast teardown. Pages and capabilities
  /// stay. From now on none of them does anything, and the device has new ones; those that were
  /// many are destroyed turn by turn.
  void drop_objects();
  /// Drops all that a driver made, gave or chose: DISABLE_HCA, a new command queue.
  void forget_driver();
  /// Destroys what was dropped, until work() is spent. True: all of it is gone. No command is
  /// executed before, so a driver that drops objects again and again has no more of them at a time.
  bool clear_remains();
  /// Until then `initializing` is set.
  bool has_remains() const { return remains_ != nullptr; }
  /// Charges what the users of memory keys have noted (rdma::KeyTable::add_work).
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
  void receive_of_other_path(const wire::Frame& frame);
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
  util::Time run_time_;  ///< of the last run()
  util::Notes notes_;
  Health health_;
  InternalSpaces internal_spaces_;
  VendorCapability vendor_capability_{internal_spaces_};
  std::unique_ptr<Companion> companion_;
  fabric::Port* port_;
  std::unique_ptr<fabric::TracePort> trace_port_;  ///< in front of it, with a trace
  std::unique_ptr<Capabilities> capabilities_;
  std::unique_ptr<PageManager> pages_;
  std::unique_ptr<SharedDoorbells> shared_doorbells_;  ///< outlives the queues on its pages
  std::unique_ptr<Objects> objects_;
  /// What an earlier driver left, on its way out.
  std::unique_ptr<Objects> remains_;
  std::unique_ptr<CommandInterface> commands_;
  /// The first halves of CQ doorbells that are written as two dwords, by doorbell page.
  std::vector<std::optional<std::uint32_t>> half_cq_doorbells_;
  /// Of a send doorbell: what tells it from others.
  static constexpr std::uint64_t doorbell_key(UarPage uar, std::uint32_t number) {
    return std::uint64_t{uar.value()} << 32 | number;  // no format: two numbers in one
  }

  std::uint64_t uar_writes_ = 0;  ///< doorbells that came as messages, since the device is there
  static constexpr std::uint64_t kNoDoorbell = UINT64_MAX;
  std::uint64_t last_rung_ = kNoDoorbell;  ///< the last one since the last run()
  /// Send doorbells of SQs rung since the last run(), each number once.
  std::vector<std::uint32_t> rung_;
  std::vector<std::uint8_t> is_rung_;  ///< by number, 0 or 1
  /// Something besides RDMA may have work: a register was written, an Ethernet frame has come.
  bool attention_ = true;
  util::Time quiet_until_{};      ///< until then it has none unless attention_ says so
  util::Time others_next_{};      ///< when run() is to be called for it
  bool sniffs_received_ = false;  ///< Ethernet::sniffs_received(), since the last command
  bool overdrawn_ = false;        ///< arrived frames have cost more than the function may owe
  bool rdma_first_ = true;        ///< in the next run(), RDMA works before Ethernet
};

}  // namespace softhca::connectx
