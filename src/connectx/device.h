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

#include "connectx/base/bar_layout.h"
#include "connectx/base/health.h"
#include "connectx/base/limits.h"
#include "connectx/base/model.h"
#include "connectx/base/numbers.h"
#include "connectx/base/queue_numbers.h"
#include "connectx/doorbell_pages.h"
#include "connectx/driver_state.h"
#include "connectx/fault_injection.h"
#include "connectx/function/internal_spaces.h"
#include "connectx/function/vendor_capability.h"
#include "fabric/port.h"
#include "fabric/trace_port.h"
#include "hca/doorbell_halves.h"
#include "pcie/function.h"
#include "rdma/types.h"
#include "util/clock.h"
#include "util/notes.h"

namespace softhca::connectx {

class CommandInterface;
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
  Limits limits{};  ///< resource limits; none above the default
  /// Numbers of QPs, DCTs, SRQs, SQs and RQs. If they are few, the device lowers the limits.
  QueueNumbers queue_numbers{};
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

  const DeviceOptions& options() const { return options_; }
  CommandInterface& commands() { return *commands_; }
  DriverState& driver() { return driver_; }
  util::Time now() const { return options_.clock(); }
  Health& health() { return health_; }
  FaultInjection& faults() { return faults_; }
  /// The next run() looks at all parts.
  void note_work() { attention_ = true; }
  util::Notes& notes() { return notes_; }
  /// Calls rdma::Transport::set_ack_patience(). A reset restores the default.
  void set_ack_patience(unsigned timeouts);
  /// Makes the doorbell pages of processes memory that the guest maps, so that their doorbells are
  /// no messages. Call it once, before a host connects. Fails if the machine is out of memory.
  util::Result<void> share_doorbells();
  std::optional<pcie::SharedBarMemory> shared_memory(unsigned bar) const override;
  /// Null if the model has none.
  Companion* companion() { return companion_.get(); }

  /// Drops cached flows and BlueFlame buffers. Called for a command, after which frames may take
  /// other paths and numbers may belong to other queues.
  void invalidate_flows();
  /// Starts or stops copying frames for sniffers. Called after a command.
  void look_for_sniffers();
  /// Charges the work that users of memory keys have charged (rdma::KeyTable::work).
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

  std::unique_ptr<Objects> make_objects(const Limits& limits);

  void write_first_pages(std::uint64_t offset, std::span<const std::byte> in);
  void write_page(std::uint64_t offset, std::span<const std::byte> in);

  DeviceOptions options_;
  util::Notes notes_;
  Health health_;
  FaultInjection faults_{*this};
  InternalSpaces internal_spaces_;
  VendorCapability vendor_capability_{internal_spaces_};
  std::unique_ptr<Companion> companion_;
  fabric::Port* port_;
  std::unique_ptr<fabric::TracePort> trace_port_;      ///< wraps the port; null: no trace
  std::unique_ptr<SharedDoorbells> shared_doorbells_;  ///< outlives the queues on its pages
  DriverState driver_;
  std::unique_ptr<CommandInterface> commands_;
  /// True if other parts than RDMA may have work: a register was written, or an Ethernet frame has
  /// arrived.
  bool attention_ = true;
  DoorbellPages doorbells_;
  util::Time quiet_until_{};      ///< until then, they have no work unless attention_ is set
  util::Time others_next_{};      ///< when run() must be called for them
  bool sniffs_received_ = false;  ///< Ethernet::sniffs_received() as of the last command
  bool overdrawn_ = false;        ///< arriving frames have cost more than kDebtMax allows
  bool rdma_first_ = true;        ///< in the next run(), RDMA runs before Ethernet
};

}  // namespace softhca::connectx
