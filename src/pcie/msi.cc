#include "pcie/msi.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "util/bits.h"

namespace softhca::pcie {

Msi::Msi(std::uint16_t vectors) : vectors_(vectors) {
  assert(std::has_single_bit(vectors) && vectors <= kMaxVectors);
}

void Msi::set_sink(InterruptSink* sink, Masking masking) {
  const Paused paused(threads());
  sink_ = sink;
  externally_masked_ = masking == Masking::kExternal ? ~0u : 0u;
}

std::uint16_t Msi::allocated() const {
  // A request for more than the function has, or a reserved encoding, is software's error.
  const auto wanted = 1u << control_.multiple_message_enable;
  return static_cast<std::uint16_t>(std::min<unsigned>(wanted, vectors_));
}

std::uint32_t Msi::masked() const {
  return bus_master_ ? control_.mask_bits | externally_masked_ : ~0u;
}

bool Msi::sends(std::uint16_t vector) const {
  return sink_ != nullptr && control_.enabled && vector < allocated() &&
         !util::has_bit(masked(), vector);
}

void Msi::send(std::uint16_t vector) {
  if (trace() != nullptr) trace()->note(util::TraceStep::kInterrupt, {}, {{"vector", vector}});
  sink_->raise(vector);
}

void Msi::raise(std::uint16_t vector) {
  if (sink_ == nullptr || !control_.enabled || vector >= allocated()) return;
  if (sends(vector)) {
    send(vector);
  } else {
    pending_ |= 1u << vector;
  }
}

void Msi::send_pending() {
  if (sink_ == nullptr || !control_.enabled) return;
  while (const auto ready = pending_ & ~masked()) {
    const auto vector = static_cast<std::uint16_t>(std::countr_zero(ready));
    pending_ &= ~(1u << vector);
    send(vector);
  }
}

void Msi::set_vector_masked(std::uint16_t vector, bool masked) {
  if (vector >= vectors_) return;
  const Paused paused(threads());
  const auto bit = 1u << vector;
  externally_masked_ = masked ? externally_masked_ | bit : externally_masked_ & ~bit;
  send_pending();
}

void Msi::set_bus_master(bool enabled) {
  if (enabled == bus_master_) return;
  bus_master_ = enabled;
  send_pending();
}

void Msi::set_control(const MessageControl& control) {
  control_ = control;
  // Pending messages have no destination any more, and must not reach the next driver.
  if (!control.enabled) pending_ = 0;
  send_pending();
}

void Msi::reset() {
  control_ = {};
  pending_ = 0;
}

}  // namespace softhca::pcie
