#include "connectx/command/init_segment.h"

#include <algorithm>
#include <cassert>

#include "connectx/base/timestamp.h"
#include "util/bits.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using InitLayout = spec::connectx::init_segment;
using HealthBuffer = spec::connectx::health_buffer;

constexpr std::uint64_t kAddressHigh = InitLayout::cmdq_phy_addr.kOffset;
constexpr std::uint64_t kAddressLow = InitLayout::nic_interface.kOffset;
constexpr std::uint64_t kDoorbells = InitLayout::command_doorbell_vector.kOffset;

/// Period of the health counter, as in hardware. Drivers poll it every 2 to 3 seconds, and must
/// read another value each time (mlx5: health poll).
constexpr util::Duration kHealthPeriod = std::chrono::milliseconds(10);

}  // namespace

InitSegment::InitSegment(const Model& model) {
  image_.set(InitLayout::fw_rev_major, model.firmware_major);
  image_.set(InitLayout::fw_rev_minor, model.firmware_minor);
  image_.set(InitLayout::fw_rev_subminor, model.firmware_subminor);
  image_.set(InitLayout::cmd_interface_rev, kCommandInterfaceRevision);
  image_.set(InitLayout::log_cmdq_size, kLogQueueSize);
  image_.set(InitLayout::log_cmdq_stride, kLogStride);
  image_.set(InitLayout::fw_reset_supported, 1);
  // All ones here would mean that the device has dropped off the bus.
  const auto health = image_.sub(InitLayout::health_buffer);
  health.set(HealthBuffer::fw_version_major, model.firmware_major);
  health.set(HealthBuffer::fw_version_minor, model.firmware_minor);
}

pcie::Iova InitSegment::queue_address() const {
  return util::in_place(InitLayout::cmdq_phy_addr, image_.get(InitLayout::cmdq_phy_addr));
}

InitSegment::NicInterface InitSegment::nic_interface() const {
  return static_cast<NicInterface>(image_.get(InitLayout::nic_interface));
}

void InitSegment::read(std::uint64_t offset, std::span<std::byte> out, const Live& live) {
  assert(offset + out.size() <= kSize);
  image_.set(InitLayout::internal_timer, device_ticks(live.now));
  const auto stopped_at = live.health.stopped_at();
  const auto counted = stopped_at.value_or(live.now).time_since_epoch();
  const auto ticks = static_cast<std::uint64_t>(counted / kHealthPeriod);
  image_.set(InitLayout::initializing, live.initializing ? 1 : 0);
  // Never 0, because after a PCI error, 0 means to drivers that the device is not ready yet.
  image_.set(InitLayout::health_counter,
             static_cast<std::uint32_t>(ticks % InitLayout::health_counter.kMax) + 1);
  // Set both the manual's field and the one that drivers read.
  const auto syndrome = static_cast<std::uint32_t>(live.health.syndrome());
  image_.set(InitLayout::health_syndrome, syndrome);
  const auto buffer = image_.sub(InitLayout::health_buffer);
  buffer.set(HealthBuffer::synd, syndrome);
  buffer.set(HealthBuffer::rfr, stopped_at ? 1 : 0);
  std::copy_n(image_.bytes().begin() + static_cast<std::ptrdiff_t>(offset), out.size(),
              out.begin());
}

InitSegment::Effects InitSegment::write(std::uint64_t offset, std::span<const std::byte> in) {
  Effects effects;
  // All writable registers are dwords. An 8-byte write is two dword writes, the high one first.
  if (offset % 4 != 0 || in.size() % 4 != 0) return effects;
  for (; !in.empty(); in = in.subspan(4), offset += 4) {
    write_dword(offset, util::load_be32(in.data()), effects);
  }
  return effects;
}

void InitSegment::write_dword(std::uint64_t offset, std::uint32_t value, Effects& effects) {
  if (offset == kAddressHigh) {
    util::store_be32(image_.bytes().data() + kAddressHigh, value);
    high_written_ = true;
  } else if (offset == kAddressLow) {
    write_address_low(value, effects);
  } else if (offset == kDoorbells) {
    effects.doorbells |= value;
  }
}

void InitSegment::write_address_low(std::uint32_t value, Effects& effects) {
  const auto old_address = queue_address();
  const auto old_interface = nic_interface();
  util::store_be32(image_.bytes().data() + kAddressLow, value);
  // Software writes zeros to these sizes (PRM 8.2), and reads them when it starts again.
  image_.set(InitLayout::log_cmdq_size, kLogQueueSize);
  image_.set(InitLayout::log_cmdq_stride, kLogStride);
  // To change nic_interface, drivers write back the dword that they read. Only a driver that starts
  // again writes the high part first, perhaps with the address of the driver before it.
  if (high_written_ || queue_address() != old_address) {
    effects.new_queue = true;
    has_queue_ = true;
  }
  high_written_ = false;
  if (nic_interface() == NicInterface::SW_RESET) {
    // The reset takes no time. At its end the interface is disabled.
    image_.set(InitLayout::nic_interface, static_cast<std::uint32_t>(NicInterface::DISABLED));
    effects.reset = true;
  }
  if (nic_interface() != old_interface) effects.nic_interface_changed = true;
}

}  // namespace softhca::connectx
