// MSI-X towards a vfio-user client: one eventfd for each vector, set and masked by SET_IRQS.
//
// The client traps the MSI-X table itself, so it is the masker: a vector without an eventfd, or
// masked by SET_IRQS, becomes pending in the function's PBA and is sent when that changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pcie/msix.h"
#include "vfio_user/protocol.h"
#include "vfio_user/unique_fd.h"
#include "vfio_user/verdict.h"

namespace softhca::vfio_user {

class ClientInterrupts final : public pcie::InterruptSink {
 public:
  explicit ClientInterrupts(pcie::Msix& msix);
  ~ClientInterrupts() override;
  ClientInterrupts(const ClientInterrupts&) = delete;
  ClientInterrupts& operator=(const ClientInterrupts&) = delete;

  /// GET_IRQ_INFO for interrupt type `index`; the caller has checked it.
  protocol::IrqInfo info(std::uint32_t index) const;
  /// SET_IRQS. `data` is what follows the structure.
  Verdict set(const protocol::IrqSet& request, std::span<const std::byte> data,
              std::span<UniqueFd> fds);

  void raise(std::uint16_t vector) override;

 private:
  struct Vector {
    UniqueFd eventfd;
    bool masked = false;
  };

  Verdict set_eventfds(const protocol::IrqSet& request, std::span<UniqueFd> fds);
  void disable();
  void update_mask(std::uint32_t vector);

  pcie::Msix& msix_;
  std::vector<Vector> vectors_;
};

}  // namespace softhca::vfio_user
