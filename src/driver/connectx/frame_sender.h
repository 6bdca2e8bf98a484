// Sends Ethernet frames: an SQ (PRM 7.9) and the TIS that it sends through (PRM 7.6).
//
// Its completions arrive in the completion queue given to create(), as those of a queue pair do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/completion_targets.h"
#include "driver/connectx/frame_send_queue.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/transport_domain.h"
#include "driver/dma_memory.h"
#include "driver/work.h"

namespace softhca::driver::connectx {

class FrameSender final : public CompletionTarget {
 public:
  struct Options {
    CompletionQueue& cq;
    /// `inline_size`: bytes of headers in a request.
    FrameSendQueue::Limits send = {};
    std::uint8_t priority = 0;  ///< Ethernet priority, 0 to 7
  };

  static util::Result<std::unique_ptr<FrameSender>> create(ProtectionDomain& pd,
                                                           TransportDomain& domain,
                                                           const Options& options);
  ~FrameSender();
  FrameSender(const FrameSender&) = delete;
  FrameSender& operator=(const FrameSender&) = delete;

  std::uint32_t sqn() const { return number(); }

  // These neither allocate nor make system calls.

  PostStatus post(const FrameRequest& request);
  /// Posts in order and rings the doorbell once. Returns how many were posted; `status` is that of
  /// the first request that was not.
  std::size_t post(std::span<const FrameRequest> requests, PostStatus& status);

  /// DESTROY_SQ and DESTROY_TIS. The destructor does it too, but cannot report an error.
  util::Result<void> destroy();

  // For CompletionQueue ------------------------------------------------------------------------

  std::optional<std::uint64_t> complete_send(std::uint32_t sqn, std::uint16_t counter) override {
    return sqn == number_ ? queue_.complete(counter) : std::nullopt;
  }
  std::optional<std::uint64_t> complete_receive(std::uint32_t, std::uint16_t) override {
    return std::nullopt;
  }

 private:
  FrameSender(ProtectionDomain& pd, TransportDomain& domain, const Options& options);
  util::Result<void> create_on_device();
  util::Result<void> create_tis();
  util::Result<void> create_sq();
  util::Result<void> start();
  void ring_doorbell();

  ProtectionDomain& pd_;
  TransportDomain& domain_;
  Hca& hca_;
  Host& host_;
  Options options_;
  DmaBuffer memory_;  ///< the ring, then the doorbell record
  std::size_t ring_size_ = 0;
  std::uint64_t doorbell_ = 0;  ///< offset in the BAR
  std::uint32_t tisn_ = 0;
  std::uint32_t user_index_ = 0;
  bool has_tis_ = false;
  bool exists_ = false;
  FrameSendQueue queue_;
};

}  // namespace softhca::driver::connectx
