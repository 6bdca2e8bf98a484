#include "jingzhao/doorbell_pages.h"

#include <bit>

#include "jingzhao/objects.h"

namespace softhca::jingzhao {

namespace {

/// Work (util::WorkBudget) of arming a CQ or an EQ, without the memory accesses.
constexpr std::int64_t kArmWork = 100;
constexpr std::uint64_t kSecondHalf = DoorbellPages::Page::qpn.kOffset;

/// Extracts a field that occupies its whole register.
template <class Field>
std::uint32_t field_of(Field, std::uint32_t dword) {
  return dword >> Field::kLo & Field::kMax;  // no format: the field's own place
}

}  // namespace

/// Accepts only whole dwords; two dwords count as two writes, the low one first.
void DoorbellPages::write_dwords(QueuePairs& queue_pairs, std::uint64_t offset,
                                 std::span<const std::byte> in) {
  if (offset % kDword != 0 || in.size() % kDword != 0) return;
  const auto page = offset / Page::kSize;
  for (; !in.empty(); in = in.subspan(kDword), offset += kDword) {
    const auto value = util::load_le32(in.data());
    switch (offset % Page::kSize) {
      case kFirstHalf:
        halves_.put(page, value);
        break;
      case kSecondHalf:
        if (const auto first = halves_.take(page)) {
          const auto joined = std::uint64_t{value} << 32 | *first;  // no format: joins
          queue_pairs.ring(SendDoorbell(joined));
        }
        break;
      case Page::arm_cqn.kOffset:
        if (armed_cqs_.size() < arms_max_) {
          armed_cqs_.push_back(Cqn(field_of(Page::arm_cqn, value)));
        }
        break;
      case Page::arm_eqn.kOffset:
        if (const auto eqn = field_of(Page::arm_eqn, value); eqn < (1u << limits::kLogEqs)) {
          armed_eqs_ |= std::uint64_t{1} << eqn;
        }
        break;
      default:
        break;
    }
  }
}

/// Arming reads the ring, which may load the region of the ring.
bool DoorbellPages::arm(Objects& objects, util::WorkBudget& work) {
  auto& keys = *objects.memory_keys;
  std::size_t done = 0;
  while (done != armed_cqs_.size() && !work.spent()) {
    objects.completion_queues->arm(objects.numbering.cqn(armed_cqs_[done++].value()));
    work.charge(kArmWork);
    charge_memory(keys, work);
  }
  armed_cqs_.erase(armed_cqs_.begin(), armed_cqs_.begin() + static_cast<std::ptrdiff_t>(done));
  while (armed_eqs_ != 0 && !work.spent()) {
    const auto eqn = static_cast<std::uint32_t>(std::countr_zero(armed_eqs_));
    armed_eqs_ &= armed_eqs_ - 1;
    objects.event_queues->arm(Eqn(eqn));
    work.charge(kArmWork);
    charge_memory(keys, work);
  }
  return has_arms();
}

void DoorbellPages::drop_arms() {
  armed_cqs_.clear();
  armed_eqs_ = 0;
}

}  // namespace softhca::jingzhao
