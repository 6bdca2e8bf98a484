// A large copy that several threads carry out together, chunk by chunk. The owner opens it, takes
// chunks like the other threads, and closes it. After close() no thread takes a chunk, and those
// under way have ended. Chunks are taken in order: the copied bytes are contiguous from the start,
// as if one thread had copied them.
//
// All threads are inside the gate (gate.h), so that both buffers stay mapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softhca::sdxi {

class SharedCopy {
 public:
  /// Bytes that a thread takes at a time; the last chunk may be shorter. Measured with two threads
  /// and 16 MiB: 64 KiB is a tenth slower.
  static constexpr std::uint64_t kChunk = 256 << 10;

  struct Buffers {
    std::byte* to;
    const std::byte* from;
    std::uint64_t size;   ///< bytes; at most 4 GiB
    std::uint64_t whole;  ///< bytes of the whole copy of the descriptor
  };

  /// Opens the copy to all threads; the caller is its owner. False if another thread owns it.
  bool open(const Buffers& buffers);
  /// Copies the next chunk; returns its bytes, or 0 if none is left.
  std::uint64_t copy_next();
  /// Bytes taken so far. Owner only.
  std::uint64_t taken() const;
  /// Ends the copy; returns how many bytes were copied. Owner only.
  std::uint64_t close();

 private:
  /// Bits of `state_` that hold the next chunk; the bits above hold the number of the opening, so
  /// that a delayed thread takes no chunk of a later copy.
  static constexpr unsigned kNextBits = 20;
  /// A chunk number beyond the end of every copy.
  static constexpr std::uint64_t kClosed = (std::uint64_t{1} << kNextBits) - 1;

  std::uint64_t bytes(std::uint64_t chunks) const;

  // Read by all threads. The buffers are valid for a thread that has taken a chunk.
  alignas(64) std::atomic<std::uint64_t> state_ = kClosed;
  std::atomic<std::byte*> to_ = nullptr;
  std::atomic<const std::byte*> from_ = nullptr;
  std::atomic<std::uint64_t> size_ = 0;
  std::atomic<std::uint64_t> whole_ = 0;
  alignas(64) std::atomic<std::uint64_t> finished_ = 0;  ///< chunks of this opening
  alignas(64) std::atomic<bool> owned_ = false;
  std::uint64_t openings_ = 0;  ///< owner only
};

}  // namespace softhca::sdxi
