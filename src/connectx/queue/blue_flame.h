// BlueFlame (PRM 7.2.2.1): software writes a send WQE to a buffer of a doorbell page as well as to
// its queue. That is its doorbell, and spares the device to read the queue's memory.
//
// Who cannot combine its writes (a guest, whose stores to the page come one by one) has rung a
// doorbell with its first 8 bytes, and nothing else; the WQE is read from the queue then. The same
// holds for whatever is not there whole, is not the next WQE of its queue, or is not executed in
// the turn in which it came.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/base/numbers.h"
#include "connectx/queue/send_control.h"
#include "spec/connectx/init_segment.h"

namespace softhca::connectx {

class BlueFlame {
 public:
  /// Bytes of a buffer: half of a register of 2^log_bf_reg_size.
  static constexpr std::uint32_t kSize = spec::connectx::uar_page::db_blueflame_buffer0_even.kSize;
  /// Writes of less are not combined ones.
  static constexpr std::size_t kLeast = kWqeBasicBlock;

  /// A combined write to a buffer. `offset`: in the page. What does not begin where the buffer or
  /// what was written to it before ends, or goes beyond it, is none of a WQE.
  void write(UarPage page, std::uint32_t offset, std::span<const std::byte> in);
  /// Copies the WQE that has this index in this queue to the beginning of `wqe`, and returns its
  /// size in bytes. 0: it was not written, or not whole.
  std::size_t take(Qpn number, std::uint16_t index, std::span<std::byte> wqe) const;
  bool empty() const { return count_ == 0; }
  /// The end of a turn, or a command that may have changed the queues.
  void forget() { count_ = 0; }

 private:
  struct Buffer {
    UarPage page{};
    std::uint32_t offset = 0;  ///< in the page
    std::uint32_t filled = 0;  ///< bytes
    std::array<std::byte, kSize> bytes{};
  };

  /// More in one turn are doorbells.
  static constexpr std::size_t kBuffers = 16;
  std::size_t count_ = 0;
  std::array<Buffer, kBuffers> buffers_;
};

}  // namespace softhca::connectx
