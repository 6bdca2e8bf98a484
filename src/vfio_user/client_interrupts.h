// MSI and MSI-X towards a vfio-user client: one eventfd for each vector, set and masked by
// SET_IRQS.
//
// The client traps the MSI-X table and keeps an MSI capability of its own, so it is the masker: a
// vector without an eventfd, or masked by SET_IRQS, becomes pending in the function and is sent
// when that changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pcie/interrupts.h"
#include "vfio_user/protocol.h"
#include "vfio_user/unique_fd.h"
#include "vfio_user/verdict.h"

namespace softhca::vfio_user {

/// The vectors of one interrupt type.
class ClientVectors final : public pcie::InterruptSink {
 public:
  /// Null: the function has no interrupts of this type.
  explicit ClientVectors(pcie::InterruptMechanism* mechanism);
  ~ClientVectors() override;
  ClientVectors(const ClientVectors&) = delete;
  ClientVectors& operator=(const ClientVectors&) = delete;

  std::uint32_t count() const { return static_cast<std::uint32_t>(vectors_.size()); }
  void set_eventfd(std::uint32_t vector, UniqueFd eventfd);
  /// Vectors that have one.
  std::size_t eventfds() const;
  void set_masked(std::uint32_t vector, bool masked);
  /// As if the device had raised it.
  void trigger(std::uint32_t vector);
  /// Takes all eventfds and masks away.
  void disable();

  void raise(std::uint16_t vector) override;

 private:
  struct Vector {
    UniqueFd eventfd;
    bool masked = false;
  };

  void update_mask(std::uint32_t vector);

  pcie::InterruptMechanism* mechanism_;
  std::vector<Vector> vectors_;
};

class ClientInterrupts {
 public:
  /// At most `max_eventfds` are held for the client at a time.
  ClientInterrupts(pcie::Interrupts& interrupts, std::size_t max_eventfds)
      : max_eventfds_(max_eventfds), msi_(interrupts.msi()), msix_(&interrupts.msix()) {}

  /// GET_IRQ_INFO for interrupt type `index`; the caller has checked it.
  protocol::IrqInfo info(std::uint32_t index) const;
  /// SET_IRQS. `data` is what follows the structure.
  Verdict set(const protocol::IrqSet& request, std::span<const std::byte> data,
              std::span<UniqueFd> fds);

 private:
  /// Null: a type that no function has.
  const ClientVectors* find(std::uint32_t index) const;
  ClientVectors* find(std::uint32_t index);
  Verdict set_eventfds(ClientVectors& vectors, const protocol::IrqSet& request,
                       std::span<UniqueFd> fds);

  std::size_t max_eventfds_;
  ClientVectors msi_;
  ClientVectors msix_;
};

}  // namespace softhca::vfio_user
