// A context: a descriptor ring, its completion blocks and its AKeys (SDXI 3.2).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/sdxi/completion_blocks.h"
#include "driver/sdxi/descriptor.h"
#include "driver/sdxi/ring.h"
#include "spec/sdxi/context.h"
#include "spec/sdxi/keys.h"

namespace softhca::driver::sdxi {

class Function;

/// True in a final state of a stop (SDXI 4.3.5), where software may change the structures.
constexpr bool has_stopped(spec::cxtv state) {
  using enum spec::cxtv;
  return state == CXTV_STOP_SW || state == CXTV_STOP_FN || state == CXTV_ERR_FN;
}

class Context {
 public:
  /// AKey 0 of every context: the function's own memory.
  static constexpr std::uint16_t kOwnMemory = 0;

  /// Allocates the structures; Function publishes and starts the context.
  static util::Result<std::unique_ptr<Context>> create(Function& function,
                                                       std::uint32_t ring_entries);
  /// Stops it, hard if need be, and takes it out of the tables.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  std::uint16_t number() const { return number_; }
  spec::cxtv state() const;

  // Operations. They return as soon as the descriptor is in the ring, and fail if the ring stays
  // full or the context has stopped.
  util::Result<Completion> copy(Buffer to, Buffer from, std::uint64_t size);
  /// `size` bytes of `value`: immediate writes, copies and repeat copies of a page of it.
  util::Result<Completion> fill(Buffer to, std::byte value, std::uint64_t size);
  /// The old value is returned by old_value() after wait().
  util::Result<Completion> atomic(spec::atomic_subtype operation, Buffer at, unsigned size,
                                  std::uint64_t op1, std::uint64_t op2 = 0);
  /// Any descriptors, in this order; the completion is that of the last one, which waits for the
  /// others (it gets a fence). With `interrupt`, an AKey of use_interrupt(), an interrupt follows.
  util::Result<Completion> submit(std::span<const Descriptor> descriptors,
                                  std::optional<std::uint16_t> interrupt = std::nullopt);

  /// True when the descriptor has ended, well or not. Does not let the device work.
  bool poll(const Completion& completion) const { return blocks_.ended(completion); }
  /// Waits and gives the completion back. Fails with the function's words if the descriptor did,
  /// and at once if recover() has given it up.
  util::Result<void> wait(const Completion& completion);
  /// The same, but sleeps until interrupts of `vector` come, for what was submitted with one.
  /// Interrupts may merge on their way: they only wake, the completion block decides.
  util::Result<void> wait_interrupt(const Completion& completion, unsigned vector);
  /// Waits until `vector` was signaled `count` times in all. In process every interrupt arrives.
  util::Result<void> wait_interrupt(unsigned vector, std::uint64_t count);
  /// What an atomic operation found. @pre it was waited for, and no other was submitted since
  std::uint64_t old_value(unsigned size) const;

  /// Puts descriptors into the ring and rings the doorbell. Threads may call it at the same time
  /// (SDXI 5.2.1); false if there was no room.
  bool enqueue(std::span<const Descriptor> descriptors);

  // AKeys.
  /// Memory of function `sfunc`, which it granted as `rkey`; the AKey for Buffer.
  util::Result<std::uint16_t> reach(std::uint16_t sfunc, std::uint16_t rkey);
  /// Interrupt vector `vector` of this function; the AKey for Descriptor::interrupt.
  util::Result<std::uint16_t> use_interrupt(std::uint16_t vector);
  /// Gives an AKey back; it reaches nothing any more when this returns.
  util::Result<void> release(std::uint16_t akey);

  /// After an error: CXTV_ERR_FN to CXTV_STOP_SW, gives up what is left in the ring, and starts
  /// again. Nobody may enqueue meanwhile.
  util::Result<void> recover();

  // For Function.
  pcie::Iova control_block() const { return structures_.iova(kControlAt); }
  pcie::Iova akeys() const { return akeys_.iova(); }
  void set_number(std::uint16_t number) { number_ = number, published_ = true; }
  void set_state(spec::cxtv state);

 private:
  // Offsets in structures_: each on a cache line of its own.
  static constexpr std::size_t kControlAt = 0;
  static constexpr std::size_t kStatusAt = 64;
  static constexpr std::size_t kWriteIndexAt = 128;
  static constexpr std::size_t kOldValueAt = 192;

  explicit Context(Function& function) : function_(function) {}

  void write_control(std::uint32_t ring_entries);
  util::MutableView<spec::akey_ent> akey(std::size_t index) const;
  util::Result<std::uint16_t> free_akey();
  util::Result<void> publish_akey(std::uint16_t index);
  util::Result<void> enqueue_patiently(std::span<const Descriptor> descriptors);
  util::Result<void> failure() const;
  util::Result<void> wait(const Completion& completion, std::optional<unsigned> vector);
  util::Result<void> prepare_pattern(std::byte value);

  Function& function_;
  std::uint16_t number_ = 0;
  bool published_ = false;
  DmaBuffer structures_;
  DmaBuffer ring_memory_;
  DmaBuffer akeys_;
  CompletionBlocks blocks_;
  DmaBuffer pattern_;  ///< a page, for fill()
  Ring ring_;
};

}  // namespace softhca::driver::sdxi
