// One PCIe function, as its device model provides it and as a host sees it.
//
// This is the only access to a device: registers (config space and BARs), DMA (DmaSpace) and
// interrupts (MSI-X, MSI). The vfio-user server and the in-process drivers both use it.
//
// Single-threaded: all calls come from the loop that owns the function. A device with its own
// threads names them by set_threads(); they pause while the host changes what they use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "pcie/config_space.h"
#include "pcie/device_threads.h"
#include "pcie/dma_space.h"
#include "pcie/interrupts.h"
#include "util/clock.h"
#include "util/inspection.h"
#include "util/trace.h"
#include "util/work_budget.h"

namespace softhca::pcie {

/// Parts of a BAR that the host may map and access without calling the function: the function polls
/// them (doorbell pages) or keeps them up to date (a clock page).
struct SharedBarMemory {
  struct Area {
    std::uint64_t offset;  ///< in the BAR, page-aligned
    std::uint64_t size;    ///< bytes, whole pages
  };
  int fd;                       ///< the function keeps it; byte n of the BAR is byte n of the file
  std::span<const Area> areas;  ///< ascending, not overlapping, outside the MSI-X structures
};

class Function : private DmaTap {
 public:
  ~Function() override = default;
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  /// A name for logs, e.g. "hca0".
  const std::string& name() const { return name_; }

  /// Properties that each BAR announces; the registers themselves are in config().
  const Bar& bar(unsigned index) const { return config_.bar(index); }

  /// Host reads and writes of a BAR: 1 to 64 bytes (usually 1, 2, 4 or 8), inside the BAR's size. A
  /// read of an unimplemented register returns zeros; a write to it is dropped. In D3hot, reads
  /// return ones, as an Unsupported Request does. Accesses to the MSI-X table and PBA are served
  /// here; all others go to read_register and write_register.
  void read_bar(unsigned index, std::uint64_t offset, std::span<std::byte> out);
  void write_bar(unsigned index, std::uint64_t offset, std::span<const std::byte> in);

  /// The parts of the BAR that the host may map; none unless the device overrides it.
  virtual std::optional<SharedBarMemory> shared_memory(unsigned /*bar*/) const {
    return std::nullopt;
  }

  /// Host reads and writes of config space (4096 bytes). Handles FLR, MSI and MSI-X control, BAR
  /// sizing.
  void read_config(std::uint32_t offset, std::span<std::byte> out);
  void write_config(std::uint32_t offset, std::span<const std::byte> in);

  /// Restores the power-on state, for an FLR, a bus reset, or after a client has disconnected. DMA
  /// mappings are kept, because they belong to the host; the device forgets every address it was
  /// given.
  void reset();

  /// Default limit of the work in one run().
  static constexpr std::int64_t kRunWork = 200'000;

  /// Does what is due at `now`, about `allowed` units of work (see util::WorkBudget) at most.
  /// Returns when to be called next: `now` or earlier for "immediately", util::kNever if only a
  /// host access or a frame can make work. Work beyond the limit, of this call or of arriving
  /// frames, is subtracted from what later calls allow.
  util::Time run(util::Time now, std::int64_t allowed = kRunWork) {
    note_time(now);
    work_.grant(allowed);
    if (work_.spent()) return now;
    const auto next = run_device(now);
    return work_.left() < 0 ? now : next;  // later calls make up for work beyond the limit
  }
  /// Sets the time of frames that arrive before the next run(). To be called before they are
  /// delivered if time has passed since the last run(): timers that they start would otherwise
  /// expire early.
  void note_time(util::Time now) { noted_time_ = now; }
  /// To be called when memory ran out during the function's work, which may be incomplete. The hook
  /// of set_on_failure() resets the function. False if there is no hook.
  bool fail() {
    if (!on_failure_) return false;
    on_failure_();
    return true;
  }
  void set_on_failure(std::function<void()> hook) { on_failure_ = std::move(hook); }
  /// The device's own threads; null if it has none.
  DeviceThreads* threads() const { return threads_; }
  /// Total work of this function.
  std::int64_t work_done() const { return work_.done(); }

  /// From now on the function notes its steps in `trace`. To be called once, before a host
  /// connects; the trace outlives the function.
  void set_trace(util::Trace& trace);
  /// Null if there is no trace.
  util::Trace* trace() const { return trace_; }

  /// Shows the current state, in pieces: first the parts that every function has, then the device's
  /// own. Reads mapped memory of the host, but sends no messages. Not to be called inside a
  /// register access.
  void inspect(util::Inspection& out) const;

  DmaSpace& dma() { return dma_; }
  /// The interrupts that the device raises and the host receives.
  Interrupts& interrupts() { return interrupts_; }
  Msix& msix() { return interrupts_.msix(); }
  ConfigSpace& config() { return config_; }
  const DmaSpace& dma() const { return dma_; }
  const Interrupts& interrupts() const { return interrupts_; }
  const Msix& msix() const { return interrupts_.msix(); }
  const ConfigSpace& config() const { return config_; }

 protected:
  Function(std::string name, const ConfigSpace::Identity& identity, std::span<const Bar> bars,
           const Msix::Layout& msix);

  /// Adds MSI beside MSI-X. To be called at most once, during setup; `vectors` is a power of two up
  /// to 32.
  void add_msi(std::uint16_t vectors);

  /// Names the device's own threads: they pause for every change of the DMA space, of interrupts
  /// and of config space, and for a reset. To be called once, after add_msi().
  void set_threads(DeviceThreads& threads) {
    threads_ = &threads;
    dma_.set_threads(&threads);
    interrupts_.set_threads(&threads);
  }

  /// The device part of set_trace().
  virtual void trace_device(util::Trace& /*trace*/) {}
  /// The device's registers. `out` and `in` are inside the BAR, and outside the MSI-X structures.
  virtual void read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual void write_register(unsigned bar, std::uint64_t offset,
                              std::span<const std::byte> in) = 0;
  /// The device part of run(): works until work() is spent, and charges it.
  virtual util::Time run_device(util::Time now) = 0;
  util::WorkBudget& work() { return work_; }
  /// The time of the last run(), or as noted since.
  util::Time noted_time() const { return noted_time_; }
  /// The device part of inspect(): the same calls in the same order in every state.
  virtual void inspect_device(util::Inspection& /*out*/) const {}
  /// The device part of reset().
  virtual void reset_device() = 0;

 private:
  void handle_dma(Iova iova, std::size_t size, DmaAccess access) override;
  /// Passes Bus Master Enable and the power state on to DMA and interrupts.
  void apply_may_send();
  void write_msix_bar(std::uint64_t offset, std::span<const std::byte> in);

  std::string name_;
  ConfigSpace config_;
  Interrupts interrupts_;
  /// The range of its BAR that contains the table and the PBA, and everything between them.
  const std::uint64_t msix_begin_;
  const std::uint64_t msix_end_;
  DmaSpace dma_;
  DeviceThreads* threads_ = nullptr;
  util::Trace* trace_ = nullptr;
  util::WorkBudget work_{0};
  util::Time noted_time_{};
  std::function<void()> on_failure_;
};

}  // namespace softhca::pcie
