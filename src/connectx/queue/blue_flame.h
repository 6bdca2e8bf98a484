// BlueFlame (PRM 7.2.2.1): software writes a send WQE both to its queue and to a buffer of a
// doorbell page. The buffer write is also the doorbell, and saves the device a read of the queue's
// memory.
//
// A guest that cannot combine its writes stores to the page word by word. The first 8 bytes ring
// the doorbell, and the device reads the WQE from the queue. The device also reads the queue if the
// WQE in the buffer
// - is incomplete,
// - is not the next one of its queue, or
// - is not executed in the turn in which it arrived.
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
  /// Bytes of a buffer: half of a register of 2^log_bf_reg_size bytes.
  static constexpr std::uint32_t kSize = spec::connectx::uar_page::db_blueflame_buffer0_even.kSize;
  /// Minimum bytes of a combined write; smaller writes are plain doorbells.
  static constexpr std::size_t kLeast = kWqeBasicBlock;

  /// Takes a combined write to a buffer at `offset` in the page. Ignores it unless it fits into the
  /// buffer, and begins at its start or at the end of the earlier writes.
  void write(UarPage page, std::uint32_t offset, std::span<const std::byte> in);
  /// Copies the WQE with this index in this queue to `wqe`, and returns its size in bytes. 0 if the
  /// buffers do not hold all of it.
  std::size_t take(Qpn number, std::uint16_t index, std::span<std::byte> wqe) const;
  bool empty() const { return count_ == 0; }
  /// Drops the buffers. Called at the end of a turn, and before a command that may change queues.
  void forget() { count_ = 0; }

 private:
  struct Buffer {
    UarPage page{};
    std::uint32_t offset = 0;  ///< in the page
    std::uint32_t filled = 0;  ///< bytes
    std::array<std::byte, kSize> bytes{};
  };

  /// Limit on the buffers in a turn. Further writes are plain doorbells.
  static constexpr std::size_t kBuffers = 16;
  std::size_t count_ = 0;
  std::array<Buffer, kBuffers> buffers_;
};

}  // namespace softhca::connectx
