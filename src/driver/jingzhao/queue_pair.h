// A queue pair: RC, UC or UD (JingZhao 3.2.6, 3.4).
//
//   create -> connect (to_init, to_rtr, to_rts) -> post_send, post_receive -> to_error, to_reset
//
// Completions arrive in the completion queues given to create().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "driver/access.h"
#include "driver/address.h"
#include "driver/dma_memory.h"
#include "driver/jingzhao/completion_queue.h"
#include "driver/jingzhao/hca.h"
#include "driver/work.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::driver::jingzhao {

using driver::RemoteAccess;

/// Bytes of a unit, in which WQEs are counted.
inline constexpr std::uint32_t kUnit = spec::next_unit::kSize;

/// Network address of a queue pair: JingZhao has no address table.
struct Endpoint {
  Mac mac;
  std::uint32_t ipv4 = 0;  ///< first octet in bits 31:24
  std::uint16_t lid = 0;   ///< on InfiniBand: then the other members are not used
};

struct RemoteQueuePair {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;  ///< of its first packet
  Endpoint at;
};

/// Parameters on which both ends should agree, and limits of this end (names of IBTA 11.2.4.2).
struct Connection {
  std::uint32_t psn = 0;     ///< of the first packet sent
  unsigned path_mtu = 1024;  ///< 256, 512, 1024, 2048 or 4096
  std::uint8_t ack_timeout = 14;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;       ///< 7: no limit
  std::uint8_t min_rnr_timer = 12;  ///< code of the RNR NAK timer field (12: 0.64 ms)
};

/// The destination of a datagram.
struct Datagram {
  Endpoint to;
  std::uint32_t qpn = 0;
  std::uint32_t qkey = 0;
};

/// Attributes that a transition may change besides the state; absent ones do not change.
struct Changes {
  std::optional<RemoteAccess> access = {};
  std::optional<std::uint32_t> qkey = {};
  std::optional<std::uint8_t> pkey_index = {};
  std::optional<Endpoint> remote = {};
  std::optional<std::uint8_t> ack_timeout = {};
  std::optional<std::uint8_t> retry_count = {};
  std::optional<std::uint8_t> rnr_retry = {};
  std::optional<std::uint8_t> min_rnr_timer = {};
};

class QueuePair {
 public:
  struct Options {
    CompletionQueue& send_cq;
    CompletionQueue& receive_cq;
    spec::qp_type type = spec::qp_type::RC;
    std::uint32_t pd = 0;
    unsigned requests = 64;  ///< per queue, at least
    unsigned pieces = 4;     ///< per request, at most
    unsigned inline_size = 64;
    unsigned log_message_max = 31;
    /// QP1, of type UD: receives the datagrams for the port's general services.
    bool gsi = false;
  };

  static util::Result<std::unique_ptr<QueuePair>> create(Hca& hca, const Options& options);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  std::uint32_t qpn() const { return qpn_; }

  // States -------------------------------------------------------------------------------------

  /// RST to INIT: receives may be posted. `qkey`: for UD.
  util::Result<void> to_init(const Endpoint& here, RemoteAccess access, std::uint32_t qkey = 0,
                             std::uint8_t pkey_index = 0);
  /// INIT to RTR: packets of `remote` are received; on a UD QP, those of any sender.
  util::Result<void> to_rtr(const RemoteQueuePair& remote, const Connection& connection);
  /// RTR to RTS: requests are sent.
  util::Result<void> to_rts(const Connection& connection);
  /// All three transitions.
  util::Result<void> connect(const Endpoint& here, const RemoteQueuePair& remote,
                             const Connection& connection, RemoteAccess access = {});
  /// The same for UD.
  util::Result<void> listen(const Endpoint& here, std::uint32_t qkey);
  util::Result<void> to_error();
  util::Result<void> to_drained();
  util::Result<void> from_drained();
  util::Result<void> from_send_error();
  /// In INIT, RTS or SQD: a transition to the same state.
  util::Result<void> stay(spec::qp_state state);
  /// Sets the attributes of the next transition, which table A1-2 may allow. Returns the previous
  /// ones, for restore() if the transition fails.
  using Asked = std::array<std::byte, spec::qp_context::kSize>;
  Asked change(const Changes& changes);
  void restore(const Asked& before) { std::ranges::copy(before, context_.bytes().begin()); }
  /// From any state. Posted requests are dropped without a completion.
  util::Result<void> to_reset();
  /// The context that the device reports.
  util::Result<void> query(util::MutableView<spec::qp_context> out);
  util::Result<spec::qp_state> query_state();

  // Work ---------------------------------------------------------------------------------------
  // These neither allocate nor make system calls.

  PostStatus post_send(const SendRequest& request);
  /// For UD.
  PostStatus post_send(const SendRequest& request, const Datagram& datagram);
  /// Posts in order, as one chain, and rings the doorbell once. Returns how many were posted;
  /// `status` is that of the first request that was not.
  std::size_t post_send(std::span<const SendRequest> requests, PostStatus& status);
  PostStatus post_receive(const ReceiveRequest& request);

  // For CompletionQueue ------------------------------------------------------------------------

  struct Done {
    std::uint64_t id;
    bool signaled;
  };
  /// `place`: byte offset of the WQE in its queue. Null if no such request is posted.
  const Done* complete_send(std::uint32_t place) { return sends_.complete(place); }
  const Done* complete_receive(std::uint32_t place) { return receives_.complete(place); }

 private:
  /// Posted requests of a queue, by slot.
  struct Slots {
    unsigned log_stride = 0;
    std::uint32_t producer = 0;
    std::uint32_t consumer = 0;
    std::vector<Done> requests;  ///< indexed by slot; the size is a power of two

    std::uint32_t mask() const { return static_cast<std::uint32_t>(requests.size()) - 1; }
    std::uint32_t outstanding() const { return producer - consumer; }
    std::size_t place(std::uint32_t index) const {
      return std::size_t{index & mask()} << log_stride;
    }
    std::size_t stride() const { return std::size_t{1} << log_stride; }
    /// Null if `place` is not that of the oldest request: completions arrive in posting order.
    const Done* complete(std::uint32_t place) {
      if (outstanding() == 0 || place != this->place(consumer)) return nullptr;
      return &requests[consumer++ & mask()];
    }
  };
  using Context = util::Struct<spec::qp_context>;

  QueuePair(Hca& hca, const Options& options) : hca_(hca), options_(options) {}
  util::Result<void> set_up();
  void describe(util::MutableView<spec::qp_context> context, spec::qp_state state) const;
  util::Result<void> modify(spec::command_opcode op, util::View<spec::qp_context> context);
  util::Result<void> simple(spec::command_opcode op, spec::qp_state state);
  void forget_posted();
  /// A written WQE, as its predecessor or the doorbell describes it.
  struct Written {
    spec::wqe_opcode opcode{};
    std::uint32_t units = 0;
    bool fence = false;
  };
  PostStatus write_wqe(const SendRequest& request, const Datagram* datagram, Written& written);
  std::size_t post_chain(std::span<const SendRequest> requests, PostStatus& status);
  void link(std::uint32_t before, const Written& next);
  void ring(std::uint32_t first, const Written& wqe);
  std::span<std::byte> send_slot(std::uint32_t index) const {
    return send_memory_.bytes().subspan(sends_.place(index), sends_.stride());
  }
  std::span<std::byte> receive_slot(std::uint32_t index) const {
    return receive_memory_.bytes().subspan(receives_.place(index), receives_.stride());
  }

  Hca& hca_;
  Options options_;
  std::uint32_t qpn_ = 0;
  bool has_number_ = false;
  bool in_reset_ = true;
  bool takes_sends_ = false;  ///< true from RTS on, and in ERR, where sends are flushed
  DmaBuffer send_memory_;
  DmaBuffer receive_memory_;
  std::unique_ptr<MemoryKey> send_key_;
  std::unique_ptr<MemoryKey> receive_key_;
  Slots sends_;
  Slots receives_;
  Context context_;  ///< as last written to the device
  Endpoint here_;
};

}  // namespace softhca::driver::jingzhao
