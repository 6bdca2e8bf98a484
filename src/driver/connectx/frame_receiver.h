// Receives Ethernet frames: an RQ (PRM 7.7), the TIR that leads to it (PRM 7.5), and, on request, a
// flow table that steers all frames to it (PRM 7.11).
//
// Its completions arrive in the completion queue given to create(), as those of a queue pair do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/completion_targets.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/receive_queue.h"
#include "driver/connectx/transport_domain.h"
#include "driver/dma_memory.h"
#include "driver/work.h"

namespace softhca::driver::connectx {

class FrameReceiver final : public CompletionTarget {
 public:
  struct Options {
    CompletionQueue& cq;
    ReceiveQueue::Limits receive = {};
  };

  static util::Result<std::unique_ptr<FrameReceiver>> create(ProtectionDomain& pd,
                                                             TransportDomain& domain,
                                                             const Options& options);
  ~FrameReceiver();
  FrameReceiver(const FrameReceiver&) = delete;
  FrameReceiver& operator=(const FrameReceiver&) = delete;

  std::uint32_t rqn() const { return number(); }
  std::uint32_t tirn() const { return tirn_; }

  /// From now on, all frames that arrive at the HCA come here, except those of its queue pairs.
  util::Result<void> take_all_frames();

  /// Neither allocates nor makes a system call. A frame fills the pieces of one request in order.
  PostStatus post(const ReceiveRequest& request);

  /// Destroys flow table, TIR and RQ. The destructor does it too, but cannot report an error.
  util::Result<void> destroy();

  // For CompletionQueue ------------------------------------------------------------------------

  std::optional<std::uint64_t> complete_send(std::uint32_t, std::uint16_t) override {
    return std::nullopt;
  }
  /// Instead of a queue number these completions carry a flow tag (PRM Table 68).
  std::optional<std::uint64_t> complete_receive(std::uint32_t, std::uint16_t counter) override {
    return queue_.complete(counter);
  }

 private:
  FrameReceiver(ProtectionDomain& pd, TransportDomain& domain, const Options& options);
  util::Result<void> create_on_device();
  util::Result<void> create_rq();
  util::Result<void> create_tir();
  util::Result<void> start();
  util::Result<void> create_table();
  util::Result<void> create_flow();

  ProtectionDomain& pd_;
  TransportDomain& domain_;
  Hca& hca_;
  Host& host_;
  Options options_;
  DmaBuffer memory_;  ///< the ring, then the doorbell record
  std::size_t ring_size_ = 0;
  std::size_t stride_ = 0;  ///< bytes of an entry
  std::uint32_t tirn_ = 0;
  std::uint32_t table_ = 0;
  std::uint32_t group_ = 0;
  std::uint32_t user_index_ = 0;
  bool exists_ = false;
  bool has_tir_ = false;
  bool has_table_ = false;
  bool has_group_ = false;
  bool has_flow_ = false;
  ReceiveQueue queue_;
};

}  // namespace softhca::driver::connectx
