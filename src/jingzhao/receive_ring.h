// The receive WQEs of a queue pair (JingZhao 3.4).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "jingzhao/queue_memory.h"
#include "jingzhao/send_wqe.h"
#include "spec/jingzhao/context.h"
#include "util/field.h"

namespace softhca::jingzhao {

/// WQEs of one size, consumed in ring order. There is no doorbell for receives: a WQE is posted if
/// its first unit is not all zero.
class ReceiveRing {
 public:
  /// Takes memory and sizes from the context.
  void decode(rdma::KeyTable& keys, util::View<spec::jingzhao::qp_context> context);

  bool exists() const { return stride_ != 0; }
  std::uint32_t stride() const { return stride_; }  ///< bytes
  /// Byte offset of the next WQE.
  std::uint32_t place() const { return place_; }
  /// Counter of consumed WQEs.
  std::uint16_t consumed() const { return consumed_; }

  /// Copies the first bytes of the next WQE. False if the memory is gone. @pre exists(), out.size()
  /// <= stride()
  bool read(std::span<std::byte> out) { return memory_.read(place_, out); }
  /// @pre the WQE has a unit
  static bool is_posted(std::span<const std::byte> wqe) {
    return !std::ranges::all_of(wqe.first(kUnit),
                                [](std::byte byte) { return byte == std::byte{}; });
  }
  /// True if the next WQE can be read and is posted.
  bool has_posted();
  /// Consumes the next WQE. @pre exists()
  void consume() {
    place_ += stride_;
    if (place_ == size_) place_ = 0;
    ++consumed_;
  }

 private:
  QueueMemory memory_;
  std::uint32_t stride_ = 0;  ///< bytes; 0: there is no RQ
  std::uint32_t size_ = 0;    ///< bytes, a multiple of the stride
  std::uint32_t place_ = 0;
  std::uint16_t consumed_ = 0;
};

}  // namespace softhca::jingzhao
