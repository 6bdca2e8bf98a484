#include "connectx/base/resources.h"

#include "connectx/device.h"

namespace softhca::connectx {

std::optional<std::uint32_t> NumberPool::allocate() {
  const auto number = ids_.allocate();
  if (!number) return std::nullopt;
  if (*number >= used_.size()) used_.resize(*number + 1);
  used_[*number] = true;
  ++count_;
  return number;
}

bool NumberPool::free(std::uint32_t number) {
  if (!contains(number)) return false;
  used_[number] = false;
  ids_.free(number);
  --count_;
  return true;
}

Resources::Resources()
    : pds_(1, (1u << kLogMaxPd) - 1),
      uars_(Device::kFirstUar, Device::kUarCount),
      transport_domains_(1, (1u << kLogMaxTransportDomain) - 1),
      xrcds_(1, (1u << kLogMaxXrcd) - 1),
      q_counter_ids_(1, kMaxQCounters),
      queue_numbers_(kFirstQueue, (1u << kLogMaxQueue) - kFirstQueue),
      srq_numbers_(1, (1u << kLogMaxSrq) - 1) {}

std::optional<std::uint8_t> Resources::allocate_q_counter() {
  const auto id = q_counter_ids_.allocate();
  if (!id) return std::nullopt;
  q_counters_[*id] = {};
  return static_cast<std::uint8_t>(*id);
}

bool Resources::free_q_counter(std::uint8_t id) { return q_counter_ids_.free(id); }

QCounters* Resources::q_counter(std::uint32_t id) {
  return q_counter_ids_.contains(id) ? &q_counters_[id] : nullptr;
}

}  // namespace softhca::connectx
