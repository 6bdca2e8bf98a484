// Register writes, most of them to doorbell pages (JingZhao 3.1.2).
#include "jingzhao/device.h"
#include "util/endian.h"

namespace softhca::jingzhao {

using spec::jingzhao::uar_page;

namespace {

constexpr std::uint64_t kFirstHalf = uar_page::sq_head.kOffset;
constexpr std::uint64_t kSecondHalf = uar_page::qpn.kOffset;

/// Extracts a field that occupies its whole register.
template <class Field>
std::uint32_t field_of(Field, std::uint32_t dword) {
  return dword >> Field::kLo & Field::kMax;  // no format: the field's own place
}

}  // namespace

/// Handles an SQ doorbell with both of its dwords.
inline void Device::ring(std::uint64_t doorbell) {
  objects().queue_pairs->ring(SendDoorbell(doorbell));
}

inline void Device::write_uar(std::uint64_t offset, std::span<const std::byte> in) {
  if (!initialized()) return;
  if (in.size() == 2 * kDword && offset % uar_page::kSize == kFirstHalf) [[likely]] {
    halves_[offset / uar_page::kSize].reset();
    return ring(util::load_le64(in.data()));
  }
  write_uar_dwords(offset, in);
}

/// Accepts only whole dwords; two dwords count as two writes, the low one first.
void Device::write_uar_dwords(std::uint64_t offset, std::span<const std::byte> in) {
  if (offset % kDword != 0 || in.size() % kDword != 0) return;
  const auto page = offset / uar_page::kSize;
  for (; !in.empty(); in = in.subspan(kDword), offset += kDword) {
    const auto value = util::load_le32(in.data());
    switch (offset % uar_page::kSize) {
      case kFirstHalf:
        halves_[page] = value;
        break;
      case kSecondHalf:
        if (halves_[page]) ring(std::uint64_t{value} << 32 | *halves_[page]);  // no format: joins
        halves_[page].reset();
        break;
      case uar_page::arm_cqn.kOffset:
        // Software never needs more pending arms than there are CQs.
        if (armed_cqs_.size() < std::size_t{1} << rules_.log_cqs) {
          armed_cqs_.push_back(Cqn(field_of(uar_page::arm_cqn, value)));
        }
        break;
      case uar_page::arm_eqn.kOffset:
        if (const auto eqn = field_of(uar_page::arm_eqn, value); eqn < (1u << limits::kLogEqs)) {
          armed_eqs_ |= std::uint64_t{1} << eqn;
        }
        break;
      default:
        break;
    }
  }
}

/// Writes to both BARs; doorbells are the most frequent.
void Device::write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) {
  if (bar == kUarBar) [[likely]]
    return write_uar(offset, in);
  if (bar == kHcrBar) write_hcr_dwords(offset, in);
}

/// Accepts only whole dwords; two dwords count as two writes, the low one first.
[[gnu::noinline]] void Device::write_hcr_dwords(std::uint64_t offset,
                                                std::span<const std::byte> in) {
  if (offset % kDword != 0 || in.size() % kDword != 0) return;
  for (; !in.empty(); in = in.subspan(kDword), offset += kDword) {
    write_hcr_bar(offset, util::load_le32(in.data()));
  }
}

}  // namespace softhca::jingzhao
