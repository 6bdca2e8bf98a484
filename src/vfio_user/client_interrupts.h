// MSI and MSI-X of a vfio-user client: one eventfd per vector, which SET_IRQS sets and masks.
//
// The client traps the MSI-X table and emulates the MSI capability, so the client does the masking.
// A vector without an eventfd, or masked by SET_IRQS, becomes pending in the function, and is sent
// when that changes.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "os/janitor.h"
#include "os/unique_fd.h"
#include "pcie/interrupts.h"
#include "vfio_user/message_result.h"
#include "vfio_user/protocol.h"
#include "vfio_user/wakeup_meter.h"

namespace softhca::vfio_user {

/// The vectors of one interrupt type.
class ClientVectors final : public pcie::InterruptSink {
 public:
  /// `mechanism` null: the function has no interrupts of this type. `janitor` closes eventfds; if
  /// it is null, this object does.
  ClientVectors(pcie::InterruptMechanism* mechanism, os::Janitor* janitor, WakeupMeter& meter);
  ~ClientVectors() override;
  ClientVectors(const ClientVectors&) = delete;
  ClientVectors& operator=(const ClientVectors&) = delete;

  std::uint32_t count() const { return static_cast<std::uint32_t>(eventfds_.size()); }
  void set_eventfd(std::uint32_t vector, os::UniqueFd eventfd);
  /// Number of vectors that have an eventfd.
  std::size_t eventfds() const { return eventfd_count_; }
  void set_masked(std::uint32_t vector, bool masked);
  /// Signals the vector as if the device had raised it.
  void trigger(std::uint32_t vector);
  /// Removes all eventfds and masks.
  void disable();

  void raise(std::uint16_t vector) override;
  /// Threads of the device that may raise a vector; null if there are none.
  pcie::DeviceThreads* threads() const {
    return mechanism_ == nullptr ? nullptr : mechanism_->threads();
  }

 private:
  void update_mask(std::uint32_t vector);

  pcie::InterruptMechanism* mechanism_;
  os::Janitor* janitor_;
  WakeupMeter& meter_;
  // Indexed by vector.
  std::vector<os::UniqueFd> eventfds_;
  std::vector<bool> masked_;
  std::size_t eventfd_count_ = 0;
};

class ClientInterrupts {
 public:
  /// Holds at most `max_eventfds` for the client at a time; `janitor` closes them. `meter` measures
  /// their signals, and ends them.
  ClientInterrupts(pcie::Interrupts& interrupts, os::Janitor* janitor, std::size_t max_eventfds,
                   WakeupMeter& meter)
      : max_eventfds_(max_eventfds),
        meter_(meter),
        msi_(interrupts.msi(), janitor, meter),
        msix_(&interrupts.msix(), janitor, meter) {}

  /// GET_IRQ_INFO for interrupt type `index`, which the caller has checked.
  protocol::IrqInfo info(std::uint32_t index) const;
  /// SET_IRQS. `data`: the bytes behind the structure.
  MessageResult set(const protocol::IrqSet& request, std::span<const std::byte> data,
                    std::span<os::UniqueFd> fds);
  std::size_t eventfds() const { return msi_.eventfds() + msix_.eventfds(); }
  /// Cost of requests since the last call, besides their messages (see util::WorkBudget).
  std::int64_t take_work() { return std::exchange(work_, 0); }

 private:
  /// Null for a type that no function has.
  const ClientVectors* find(std::uint32_t index) const;
  ClientVectors* find(std::uint32_t index);
  MessageResult set_eventfds(ClientVectors& vectors, const protocol::IrqSet& request,
                             std::span<os::UniqueFd> fds);

  std::size_t max_eventfds_;
  WakeupMeter& meter_;
  std::int64_t work_ = 0;
  ClientVectors msi_;
  ClientVectors msix_;
};

}  // namespace softhca::vfio_user
