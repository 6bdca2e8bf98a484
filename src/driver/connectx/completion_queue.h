// A completion queue (PRM 7.12): the device writes CQEs, the program polls them, with an event on
// request.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "driver/connectx/hca.h"
#include "driver/dma_memory.h"
#include "driver/work.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/cqe.h"

namespace softhca::driver::connectx {

class SharedReceiveQueue;

class CompletionQueue {
 public:
  struct Options {
    unsigned entries = 256;       ///< at least; rounded up to a power of two
    unsigned event_vector = 0;    ///< index of the HCA's completion vector
    bool ignore_overrun = false;  ///< the program ensures that the queue does not overrun
  };

  static util::Result<std::unique_ptr<CompletionQueue>> create(Hca& hca, const Options& options);
  static util::Result<std::unique_ptr<CompletionQueue>> create(Hca& hca) {
    return create(hca, Options());
  }
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  std::uint32_t cqn() const { return cqn_; }
  std::uint32_t entries() const { return 1u << log_size_; }

  /// Polls: fills `out` with completions in order, and returns how many there were. If there is
  /// none, lets the device work once and polls again. Allocates nothing.
  std::size_t poll(std::span<Completion> out);
  /// Requests one event (Hca::poll_completion_event), for the next completion or for one that was
  /// not polled yet. Poll after arming, before sleeping.
  void arm(bool solicited_only = false);
  /// CQEs that named no request of a living queue: a fault of the device, or a destroyed queue.
  std::uint64_t strays() const { return strays_; }
  /// DESTROY_CQ. The destructor does it too, but cannot report an error.
  /// @pre no queue uses it
  util::Result<void> destroy();

  // For Hca and queues -------------------------------------------------------------------------

  /// Called for each event of this queue: the next arming uses the next sequence number.
  void handle_event() { ++arm_sequence_; }
  /// Makes poll() skip the completions that a queue left behind. Entries that the queue took from
  /// `srq`, if any, are free again.
  /// @pre its reset or destruction is done
  void sweep(std::uint32_t user_index, SharedReceiveQueue* srq = nullptr);

 private:
  CompletionQueue(Hca& hca, const Options& options);
  util::Result<void> create_on_device(const Options& options);
  std::span<std::byte> entry(std::uint32_t index) const {
    return {ring_ + std::size_t{index & mask_} * spec::cqe64::kSize, spec::cqe64::kSize};
  }
  bool owns(std::uint32_t index) const;
  std::size_t drain(std::span<Completion> out);
  bool translate(util::View<spec::cqe64> cqe, Completion& out);
  bool is_stray() {
    ++strays_;
    return false;
  }

  Hca& hca_;
  Host& host_;
  DmaBuffer memory_;           ///< the ring, then the doorbell record
  std::byte* ring_ = nullptr;  ///< in memory_
  std::uint32_t cqn_ = 0;
  unsigned log_size_;
  std::uint32_t mask_;  ///< entries - 1
  std::uint64_t doorbell_page_;
  std::uint32_t consumer_ = 0;
  std::uint32_t arm_sequence_ = 0;
  std::uint64_t strays_ = 0;
  bool exists_ = false;
};

}  // namespace softhca::driver::connectx
