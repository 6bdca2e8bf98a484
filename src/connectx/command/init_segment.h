// The initialization segment: the first three pages of BAR0 (PRM 7.2, Table 8).
#pragma once

#include <cstdint>
#include <span>

#include "connectx/base/health.h"
#include "connectx/base/model.h"
#include "pcie/dma_space.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/opcodes.h"
#include "util/clock.h"
#include "util/field.h"

namespace softhca::connectx {

class InitSegment {
 public:
  static constexpr std::uint64_t kSize = 0x3000;
  static constexpr std::uint16_t kCommandInterfaceRevision = 5;
  static constexpr unsigned kLogQueueSize = 5;
  static constexpr unsigned kLogStride = 6;
  using NicInterface = spec::connectx::nic_interface_mode;

  explicit InitSegment(const Model& model);

  /// Values of registers that change without a write.
  struct Live {
    util::Time now;
    const Health& health;
    bool initializing;  ///< while it is set, drivers wait (PRM 8.2, step 3)
  };
  /// @pre offset + out.size() <= kSize
  void read(std::uint64_t offset, std::span<std::byte> out, const Live& live);

  /// The consequences of a write.
  struct Effects {
    bool new_queue = false;  ///< the driver starts again, with the queue at queue_address()
    bool nic_interface_changed = false;
    bool reset = false;           ///< the driver has asked for a software reset
    std::uint32_t doorbells = 0;  ///< bit n: slot n was posted
  };
  Effects write(std::uint64_t offset, std::span<const std::byte> in);

  bool has_queue() const { return has_queue_; }
  pcie::Iova queue_address() const;
  NicInterface nic_interface() const;

 private:
  void write_dword(std::uint64_t offset, std::uint32_t value, Effects& effects);
  void write_address_low(std::uint32_t value, Effects& effects);

  util::Struct<spec::connectx::init_segment> image_;
  bool high_written_ = false;
  bool has_queue_ = false;
};

}  // namespace softhca::connectx
