// An SDXI function in this process with a driver on it and contexts whose rings can be kept full.
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

  /// With no workers everything runs in the caller. Worker n is pinned to processor `first_cpu` +
  /// n.
  /// `memory`: bytes of source and of target.
  SdxiStation(unsigned workers, unsigned contexts, unsigned first_cpu, std::size_t memory);

  /// Memory for all contexts to copy from and to.
  driver::DmaBuffer& source() { return source_; }
  driver::DmaBuffer& target() { return target_; }

  /// Puts `n` descriptors of `pattern`, over and over, into the ring of one context, and waits for
  /// the last. Spins while the ring is full.
  void stream(std::span<const Descriptor> pattern, std::uint64_t n);
  /// Fills the rings of all contexts with `n` descriptors of `pattern` each and sleeps until all
  /// are done; returns the time from the first doorbell on. @pre n fits the rings
  std::chrono::nanoseconds burst(std::span<const Descriptor> pattern, std::uint64_t n);
  /// Raises interrupt 1 of the function, which nobody waits for.
  Descriptor interrupt();
  /// One descriptor after the other, each from doorbell to completion; both sides poll.
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
