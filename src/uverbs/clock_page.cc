#include "uverbs/clock_page.h"

#include <rdma/mlx5-abi.h>

#include <array>
#include <atomic>

#include "driver/connectx/uar.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/init_segment.h"
#include "util/endian.h"

namespace softhca::uverbs {
namespace {

namespace spec = softhca::spec::connectx;

/// Page 7 << 8 of the file: the kernel's driver encodes MLX5_IB_MMAP_CLOCK_INFO as the mmap
/// command.
constexpr std::uint64_t kOffset = std::uint64_t{MLX5_IB_MMAP_CLOCK_INFO} << 8 << 12;
/// Linux's values: half of the counter's range, times `mult`, fits in 64 bits.
constexpr unsigned kBits = 41, kShift = 21;

/// The free-running counter of the initialization segment (PRM Table 8).
std::uint64_t read_timer(driver::Host& host) {
  std::array<std::byte, 8> bytes{};
  host.read_bar(driver::connectx::kUarBar, spec::init_segment::internal_timer.kOffset, bytes);
  return util::load_be64(bytes.data());
}

}  // namespace

bool store_clock(Device& device, const WallClock& clock, const StorePage& store) {
  constexpr std::uint64_t kNsPerMs = 1'000'000;
  const auto khz = device.capabilities().get(spec::hca_cap::device_frequency_khz);
  if (!store || khz == 0) return false;
  // The kernel's sequence lock of this page: an odd number means that an update is in progress.
  static std::atomic<std::uint32_t> changes = 0;
  mlx5_ib_clock_info info{};
  info.sign =
      2 * changes.fetch_add(1, std::memory_order_relaxed) + MLX5_IB_CLOCK_INFO_KERNEL_UPDATING;
  info.nsec = static_cast<std::uint64_t>(clock().count());
  info.mask = (std::uint64_t{1} << kBits) - 1;
  info.cycles = read_timer(device.hca().host()) & info.mask;
  info.mult = static_cast<std::uint32_t>((kNsPerMs << kShift) / khz);
  info.shift = kShift;
  const auto bytes = std::as_bytes(std::span(&info, 1));
  const auto sign = bytes.first(sizeof info.sign);
  if (!store(kOffset, sign) || !store(kOffset, bytes)) return false;
  ++info.sign;
  return store(kOffset, sign);
}

}  // namespace softhca::uverbs
