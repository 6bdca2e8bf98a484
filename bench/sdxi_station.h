// An SDXI function in this process, with a driver and contexts whose rings can be kept full.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/in_process_host.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "sdxi/device.h"

namespace softhca::bench {

class SdxiStation {
 public:
  using Descriptor = driver::sdxi::Descriptor;

  /// Without workers, everything runs in the caller. Worker n is pinned to processor `first_cpu` +
  /// n. `memory` is the size of source and of target, in bytes.
  SdxiStation(unsigned workers, unsigned contexts, unsigned first_cpu, std::size_t memory);

  /// Memory that all contexts copy from and to.
  driver::DmaBuffer& source() { return source_; }
  driver::DmaBuffer& target() { return target_; }

  /// Puts `n` descriptors into the ring of one context, repeating `pattern`, and waits for the
  /// last. Spins while the ring is full.
  void stream(std::span<const Descriptor> pattern, std::uint64_t n);
  /// Fills the rings of all contexts with `n` descriptors of `pattern` each and sleeps until all
  /// are done. Returns the time since the first doorbell. @pre n fits the rings
  std::chrono::nanoseconds burst(std::span<const Descriptor> pattern, std::uint64_t n);
  /// Raises interrupt 1 of the function, on which no thread waits.
  Descriptor interrupt();
  /// `n` descriptors in sequence, each from doorbell to completion. Both sides poll.
  void one_by_one(Descriptor descriptor, std::uint64_t n);

  static constexpr std::uint32_t kRing = 1024;
  static constexpr std::size_t kBatch = 32;

 private:
  struct Lane {
    std::unique_ptr<driver::sdxi::Context> context;
    driver::DmaBuffer block;
    std::vector<Descriptor> batch;
    std::optional<std::uint16_t> interrupt_key{};
  };

  void arm(Lane& lane, std::uint64_t signal) const;
  static bool done(const Lane& lane);
  void enqueue(Lane& lane, std::span<const Descriptor> descriptors);
  void wait(const Lane& lane);
  Descriptor last(const Lane& lane, Descriptor descriptor) const;

  sdxi::FunctionGroup group_;
  sdxi::Device device_;
  driver::InProcessHost host_;
  std::unique_ptr<driver::sdxi::Function> function_;
  driver::DmaBuffer source_;
  driver::DmaBuffer target_;
  std::vector<Lane> lanes_;
};

}  // namespace softhca::bench
