// A completion queue (JingZhao 3.2.5, 3.3): the device writes CQEs, the program polls them, with an
// event on request.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "driver/dma_memory.h"
#include "driver/jingzhao/command_interface.h"
#include "driver/jingzhao/memory_key.h"
#include "driver/work.h"
#include "spec/jingzhao/cqe.h"
#include "util/field.h"

namespace softhca::driver::jingzhao {

class Hca;

class CompletionQueue {
 public:
  struct Options {
    unsigned entries = 256;  ///< at least; rounded up to a power of two
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
  void arm();
  /// RESIZE_CQ. Completions not polled yet are kept.
  util::Result<void> resize(unsigned entries);
  /// CQEs that named no request of a living queue: a fault of the device, or a destroyed queue.
  std::uint64_t strays() const { return strays_; }
  /// HW2SW_CQ. The destructor does it too, but cannot report an error.
  /// @pre no queue uses it
  util::Result<void> destroy();

  // For queues ---------------------------------------------------------------------------------

  /// Makes poll() skip the completions that a queue left behind.
  void sweep(std::uint32_t qpn);

 private:
  explicit CompletionQueue(Hca& hca) : hca_(hca) {}
  util::Result<void> create_on_device(const Options& options);
  util::Result<void> allocate(unsigned log_size, DmaBuffer& memory,
                              std::unique_ptr<MemoryKey>& key);
  std::span<std::byte> entry(std::uint32_t index) const {
    return memory_.bytes().subspan(std::size_t{index & ((1u << log_size_) - 1)} * spec::cqe::kSize,
                                   spec::cqe::kSize);
  }
  bool translate(util::View<spec::cqe> cqe, Completion& out, bool& wanted);

  Hca& hca_;
  DmaBuffer memory_;
  std::unique_ptr<MemoryKey> key_;
  std::uint32_t cqn_ = 0;
  unsigned log_size_ = 0;
  std::uint32_t consumer_ = 0;
  std::uint64_t strays_ = 0;
  bool has_number_ = false;
  bool exists_ = false;
};

}  // namespace softhca::driver::jingzhao
