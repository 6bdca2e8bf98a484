// A queue pair of any service: the device's object, both rings and the doorbell record in one
// buffer. Its states are those of spec/infiniband/qp_states.h.
//
//   create -> connect or activate -> post_send, post_receive -> to_error, to_reset
//
// Completions arrive in the completion queues given to create(). A received datagram has 40 bytes
// in front: the GRH, or the IP header in their last bytes (IBTA 11.4.1.2, Annex A17). A receive
// must have room for them; Completion::byte_count counts them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "driver/access.h"
#include "driver/address.h"
#include "driver/connectx/completion_queue.h"
#include "driver/connectx/completion_targets.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/receive_queue.h"
#include "driver/connectx/send_queue.h"
#include "driver/connectx/shared_receive_queue.h"
#include "driver/connectx/uar.h"
#include "driver/dma_memory.h"
#include "driver/verbs/backend.h"
#include "driver/work.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/wqe.h"

namespace softhca::driver::connectx {

using driver::RemoteAccess;
using verbs::QpState;

/// The other end of a connection, as the program learned it by other means.
struct RemoteQueuePair {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;  ///< of its first packet
  Gid gid;
  Mac mac;
};

/// Parameters on which both ends should agree, and limits of this end (names of IBTA 11.2.4.2).
struct Connection {
  std::uint32_t psn = 0;          ///< of the first packet sent
  unsigned path_mtu = 1024;       ///< 256, 512, 1024, 2048 or 4096
  unsigned reads = 16;            ///< READs and atomics under way, in each direction
  std::uint8_t ack_timeout = 14;  ///< 4.096 us * 2^n; 0: no timeout
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;       ///< 7: no limit
  std::uint8_t min_rnr_timer = 12;  ///< code of the RNR NAK timer field (12: 0.64 ms)
};

class QueuePair final : public CompletionTarget, public verbs::QpBackend {
 public:
  struct Options {
    CompletionQueue& send_cq;
    CompletionQueue& receive_cq;
    SendQueue::Limits send = {};
    ReceiveQueue::Limits receive = {};
    /// Receives are taken from this SRQ, and `receive` is ignored.
    SharedReceiveQueue* srq = nullptr;
    /// QP1 is the port's, which receives management datagrams (IBTA 10.2.4.4).
    spec::service_type service = spec::service_type::RC;
  };

  static util::Result<std::unique_ptr<QueuePair>> create(ProtectionDomain& pd,
                                                         const Options& options);
  ~QueuePair() override;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  std::uint32_t qpn() const { return number_; }
  std::uint32_t number() const override { return number_; }
  /// DESTROY_QP. The destructor does it too, but cannot report an error.
  util::Result<void> destroy() override;

  // States -------------------------------------------------------------------------------------

  util::Result<void> modify(QpState from, QpState to,
                            const verbs::QpAttributes& attributes) override;
  /// RC: RESET to RTS.
  util::Result<void> connect(const RemoteQueuePair& remote, const Connection& connection,
                             RemoteAccess access = RemoteAccess());
  /// Datagrams: RESET to RTS. `qkey`: the Q_Key that received datagrams must carry.
  util::Result<void> activate(std::uint32_t qkey);
  /// From any state. Posted requests, and those posted later, complete with WorkStatus::kFlushed.
  util::Result<void> to_error();
  /// From any state. Posted requests are dropped without a completion.
  util::Result<void> to_reset();
  util::Result<QpState> query_state() override;
  util::Result<void> attach(const Gid& group) override;
  util::Result<void> detach(const Gid& group) override;

  // Work ---------------------------------------------------------------------------------------
  // These neither allocate nor make system calls.

  /// The `address` of a datagram is an AddressVector's form().
  PostStatus post_send(const SendRequest& request);
  /// Posts in order and rings the doorbell once.
  std::size_t post_send(std::span<const SendRequest> requests, PostStatus& status) override;
  /// Posts a WQE of the caller: see SendRing::post_wqe().
  PostStatus post_wqe(std::uint64_t id, std::span<std::byte> wqe);
  PostStatus post_receive(const ReceiveRequest& request);
  std::size_t post_receive(std::span<const ReceiveRequest> requests, PostStatus& status) override;

  // For CompletionQueue ------------------------------------------------------------------------

  std::optional<std::uint64_t> complete_send(std::uint32_t qpn, std::uint16_t counter) override {
    return qpn == number_ ? send_queue_.complete(counter) : std::nullopt;
  }
  std::optional<std::uint64_t> complete_receive(std::uint32_t qpn, std::uint16_t counter) override {
    if (qpn != number_) return std::nullopt;
    return options_.srq == nullptr ? receive_queue_.complete(counter)
                                   : options_.srq->complete(counter);
  }

 private:
  QueuePair(ProtectionDomain& pd, const Options& options);
  util::Result<void> create_on_device();
  // Set QPC fields: those of CREATE_QP, those of all transitions, and those that RST2INIT_QP adds.
  void describe_queues(util::MutableView<spec::qpc> context) const;
  void describe_service(util::MutableView<spec::qpc> context) const;
  void describe_objects(util::MutableView<spec::qpc> context) const;
  void sweep();
  PostStatus write(const SendRequest& request) {
    return is_datagram_ ? send_queue_.post_datagram(request) : send_queue_.post(request);
  }
  void ring_send_doorbell() {
    // First the request, then the record, then the register (PRM 7.4.3.1).
    std::atomic_thread_fence(std::memory_order_release);
    record().set(spec::doorbell_record::send_counter, send_queue_.producer());
    std::atomic_thread_fence(std::memory_order_release);
    host_.write_bar(kUarBar, doorbell_, send_queue_.last_control());
  }
  util::MutableView<spec::doorbell_record> record() const {
    return util::MutableView<spec::doorbell_record>({record_, spec::doorbell_record::kSize});
  }

  ProtectionDomain& pd_;
  Hca& hca_;
  Host& host_;
  Options options_;
  bool is_datagram_;
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
