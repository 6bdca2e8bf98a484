// A large copy that several threads carry out together, chunk by chunk. Who opens it, its owner,
// takes chunks like everybody else and closes it: then nobody takes one any more and those under
// way have ended. Chunks are taken in order, so that what is copied then is one piece from the
// beginning on, as if one thread had done it.
//
// Everybody is inside the gate (gate.h), so that both buffers stay where they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softhca::sdxi {

class SharedCopy {
 public:
  /// Bytes that a thread takes at once; the last chunk may be shorter. Measured with two threads
  /// and 16 MiB: 64 KiB loses a tenth.
  static constexpr std::uint64_t kChunk = 256 << 10;

  struct Buffers {
    std::byte* to;
    const std::byte* from;
    std::uint64_t size;   ///< bytes; at most 4 GiB
    std::uint64_t whole;  ///< of the descriptor that this is a piece of
  };

  /// From now on all threads take chunks, and the caller owns the copy. False if it is another's.
  bool open(const Buffers& buffers);
  /// Copies the next chunk; returns its bytes, or 0 if nothing is left to take.
  std::uint64_t copy_next();
  /// Bytes that were taken so far. Owner.
  std::uint64_t taken() const;
  /// Ends it; returns how many bytes are copied. Owner.
  std::uint64_t close();

 private:
  /// The number of the opening, above the next chunk: a thread that was held up since it looked
  /// takes nothing of a later copy.
  static constexpr unsigned kNextBits = 20;
  /// Beyond the end of every copy.
  static constexpr std::uint64_t kClosed = (std::uint64_t{1} << kNextBits) - 1;

  std::uint64_t bytes(std::uint64_t chunks) const;

  // What everybody looks at. The buffers are good for whoever has taken a chunk.
  alignas(64) std::atomic<std::uint64_t> state_ = kClosed;
  std::atomic<std::byte*> to_ = nullptr;
  std::atomic<const std::byte*> from_ = nullptr;
  std::atomic<std::uint64_t> size_ = 0;
  std::atomic<std::uint64_t> whole_ = 0;
  alignas(64) std::atomic<std::uint64_t> finished_ = 0;  ///< chunks of this opening
  alignas(64) std::atomic<bool> owned_ = false;
  std::uint64_t openings_ = 0;  ///< the owner's
};

}  // namespace softhca::sdxi
