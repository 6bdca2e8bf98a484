// A context: a descriptor ring, its completion blocks and its AKeys (SDXI 3.2).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/sdxi/access_keys.h"
#include "driver/sdxi/completion_blocks.h"
#include "driver/sdxi/descriptor.h"
#include "driver/sdxi/ring.h"
#include "spec/sdxi/context.h"

namespace softhca::driver::sdxi {

class Function;

/// True in the final states of a stop (SDXI 4.3.5), in which software may change the structures.
constexpr bool has_stopped(spec::cxtv state) {
  using enum spec::cxtv;
  return state == CXTV_STOP_SW || state == CXTV_STOP_FN || state == CXTV_ERR_FN;
}

class Context {
 public:
  /// Allocates the structures; Function publishes and starts the context.
  static util::Result<std::unique_ptr<Context>> create(Function& function,
                                                       std::uint32_t ring_entries);
  /// Stops the context, hard if necessary, and removes it from the tables.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  std::uint16_t number() const { return number_; }
  spec::cxtv state() const;

  // Operations. They return when the descriptor is in the ring, and fail if the ring stays full or
  // the context has stopped.
  util::Result<Completion> copy(Buffer to, Buffer from, std::uint64_t size);
  /// Fills `size` bytes with `value`: by immediate writes, and by copies and repeat copies of a
  /// pattern page.
  util::Result<Completion> fill(Buffer to, std::byte value, std::uint64_t size);
  /// After wait(), old_value() returns the old value.
  util::Result<Completion> atomic(spec::atomic_subtype operation, Buffer at, unsigned size,
                                  std::uint64_t op1, std::uint64_t op2 = 0);
  /// Submits descriptors in this order. The completion is that of the last one, which gets a fence
  /// and so waits for the others. With `interrupt`, an AKey of akeys().use_interrupt(), an
  /// interrupt follows.
  util::Result<Completion> submit(std::span<const Descriptor> descriptors,
                                  std::optional<std::uint16_t> interrupt = std::nullopt);

  /// True if the descriptor has ended, with or without error. Does not let the device work.
  bool poll(const Completion& completion) const { return blocks_.ended(completion); }
  /// Waits, and frees the completion. Fails with the function's reason if the descriptor failed,
  /// and immediately if recover() has given it up.
  util::Result<void> wait(const Completion& completion);
  /// The same, but sleeps until interrupts of `vector` arrive, for descriptors submitted with one.
  /// Interrupts may merge on the way: they only wake; the completion block decides.
  util::Result<void> wait_interrupt(const Completion& completion, unsigned vector);
  /// Waits until `vector` was signaled `count` times in total. In the same process no interrupt is
  /// lost.
  util::Result<void> wait_interrupt(unsigned vector, std::uint64_t count);
  /// The old value that an atomic operation returned.
  /// @pre its completion was waited for, and no other atomic was submitted since
  std::uint64_t old_value(unsigned size) const;

  /// Puts descriptors into the ring and rings the doorbell. Several threads may call it
  /// concurrently (SDXI 5.2.1). False if the ring has no room.
  bool enqueue(std::span<const Descriptor> descriptors);
  /// The indices up to which the function has taken descriptors, and producers have reserved them.
  std::uint64_t read_index() const { return ring_.read_index(); }
  std::uint64_t write_index() const { return ring_.write_index(); }

  AccessKeys& akeys() { return akeys_; }

  /// After an error: changes CXTV_ERR_FN to CXTV_STOP_SW, gives up the descriptors left in the
  /// ring, and starts the context again. No thread may enqueue meanwhile.
  util::Result<void> recover();

  // For Function and AccessKeys.
  pcie::Iova control_block() const { return structures_.iova(kControlAt); }
  Function& function() const { return function_; }
  void set_number(std::uint16_t number) { number_ = number, published_ = true; }
  void set_state(spec::cxtv state);

 private:
  // Offsets in structures_, each on its own cache line.
  static constexpr std::size_t kControlAt = 0;
  static constexpr std::size_t kStatusAt = 64;
  static constexpr std::size_t kWriteIndexAt = 128;
  static constexpr std::size_t kOldValueAt = 192;

  explicit Context(Function& function) : function_(function) {}

  void write_control(std::uint32_t ring_entries);
  util::Result<void> enqueue_patiently(std::span<const Descriptor> descriptors);
  util::Result<void> failure() const;
  util::Result<void> wait(const Completion& completion, std::optional<unsigned> vector);
  util::Result<void> prepare_pattern(std::byte value);

  Function& function_;
  std::uint16_t number_ = 0;
  bool published_ = false;
  DmaBuffer structures_;
  DmaBuffer ring_memory_;
  AccessKeys akeys_{*this};
  CompletionBlocks blocks_;
  DmaBuffer pattern_;  ///< a page, for fill()
  Ring ring_;
};

}  // namespace softhca::driver::sdxi
