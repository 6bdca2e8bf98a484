// Parts of a queue pair that are the same for every service: the device's object, both rings and
// the doorbell record in one buffer, and the states that need no address.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "driver/access.h"
#include "driver/connectx/completion_queue.h"
#include "driver/connectx/completion_targets.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/receive_queue.h"
#include "driver/connectx/send_queue.h"
#include "driver/connectx/shared_receive_queue.h"
#include "driver/connectx/uar.h"
#include "driver/dma_memory.h"
#include "driver/work.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/wqe.h"

namespace softhca::driver::connectx {

/// Writes the rights of a remote peer to a QP's context.
void allow(util::MutableView<spec::qpc> context, const RemoteAccess& access);

class QueuePairBase : public CompletionTarget {
 public:
  struct Options {
    CompletionQueue& send_cq;
    CompletionQueue& receive_cq;
    SendQueue::Limits send = {};
    ReceiveQueue::Limits receive = {};
    /// Receives are taken from this SRQ, and `receive` is ignored.
    SharedReceiveQueue* srq = nullptr;
  };

  QueuePairBase(const QueuePairBase&) = delete;
  QueuePairBase& operator=(const QueuePairBase&) = delete;

  std::uint32_t qpn() const { return number(); }

  /// From any state. Posted requests, and those posted later, complete with WorkStatus::kFlushed.
  util::Result<void> to_error();
  /// From any state. Posted requests are dropped without a completion.
  util::Result<void> to_reset();
  /// The state that the device reports.
  util::Result<spec::qp_state> query_state();
  /// DESTROY_QP. The destructor does it too, but cannot report an error.
  util::Result<void> destroy();

  /// Neither allocates nor makes a system call.
  PostStatus post_receive(const ReceiveRequest& request);

  // For CompletionQueue ------------------------------------------------------------------------

  std::optional<std::uint64_t> complete_send(std::uint32_t qpn, std::uint16_t counter) override {
    return qpn == number_ ? send_queue_.complete(counter) : std::nullopt;
  }
  std::optional<std::uint64_t> complete_receive(std::uint32_t qpn, std::uint16_t counter) override {
    if (qpn != number_) return std::nullopt;
    return options_.srq == nullptr ? receive_queue_.complete(counter)
                                   : options_.srq->complete(counter);
  }

 protected:
  /// `blocks`: blocks of the send queue per request.
  QueuePairBase(ProtectionDomain& pd, const Options& options, spec::service_type service,
                unsigned blocks);
  ~QueuePairBase();

  util::Result<void> create_on_device();
  Hca& hca() { return hca_; }
  spec::service_type service() const { return service_; }
  bool in_reset() const { return in_reset_; }
  SendQueue& send_queue() { return send_queue_; }

  // Set QPC fields: those that every transition sets, and those of RST2INIT_QP.
  void describe_service(util::MutableView<spec::qpc> context) const;
  void describe_init(util::MutableView<spec::qpc> context) const;
  /// To be called after RST2INIT_QP: receives may be posted from now on.
  void leave_reset() { in_reset_ = false; }
  void ring_send_doorbell() {
    // First the request, then the record, then the register (PRM 7.4.3.1).
    std::atomic_thread_fence(std::memory_order_release);
    record().set(spec::doorbell_record::send_counter, send_queue_.producer());
    std::atomic_thread_fence(std::memory_order_release);
    host_.write_bar(kUarBar, doorbell_, send_queue_.last_control());
  }

 private:
  void describe_queues(util::MutableView<spec::qpc> context) const;
  void sweep();
  util::MutableView<spec::doorbell_record> record() const {
    return util::MutableView<spec::doorbell_record>({record_, spec::doorbell_record::kSize});
  }

  ProtectionDomain& pd_;
  Hca& hca_;
  Host& host_;
  Options options_;
  spec::service_type service_;
  DmaBuffer memory_;  ///< receive queue, send queue, doorbell record
  std::size_t receive_size_ = 0;
  std::size_t receive_stride_ = 0;
  std::size_t send_offset_ = 0;
  std::size_t send_size_ = 0;
  std::byte* record_ = nullptr;
  std::uint64_t doorbell_ = 0;  ///< offset in the BAR
  std::uint32_t user_index_ = 0;
  bool exists_ = false;
  bool in_reset_ = true;
  SendQueue send_queue_;
  ReceiveQueue receive_queue_;
};

}  // namespace softhca::driver::connectx
