// A host for RDMA tests. It adds to FakeHost an EQ, a CQ, a key, a RoCE address, QPs, and a fabric
// that loops back frames for the host's own address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "connectx/event/completion_queue.h"
#include "connectx/fake_host.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/qp.h"
#include "util/clock.h"

namespace softhca::connectx::test {

using Opcode = spec::connectx::command_opcode;
using Service = spec::connectx::service_type;
using EventType = spec::connectx::event_type;
using CqeOpcode = spec::connectx::cqe_opcode;
using Syndrome = spec::connectx::cqe_syndrome;
using qpc = spec::connectx::qpc;
using ads = spec::connectx::ads;

struct HostCqe {
  CqeOpcode opcode;
  std::uint32_t qpn;
  std::uint16_t wqe_counter;
  std::uint32_t byte_count;
  std::uint32_t user_index;
  std::uint32_t immediate;
  Syndrome syndrome;             ///< of an error
  std::uint8_t vendor_syndrome;  ///< value as in hardware
  std::uint8_t reason;           ///< rdma::Reason as a number
  Cqe bytes;
  Cqe in_front;  ///< first half of a 128-byte CQE
};

struct QpOptions {
  Service service = Service::RC;
  unsigned log_rq = 4;     ///< WQEs of 64 bytes
  unsigned log_sq = 5;     ///< basic blocks
  std::uint32_t srqn = 0;  ///< not 0: the RMP that supplies receives
  /// The QP has no receive queue, although its context describes one.
  bool no_receive_queue = false;
  std::uint32_t user_index = 0xFFFFFF;
  std::uint32_t pd = 0;  ///< 0: the host's
  bool fre = false;
  std::uint32_t cqn = 0;  ///< 0: the host's
  unsigned cs_req = 0;
  unsigned cs_res = 0;
  bool wq_signature = false;
  unsigned log_msg_max = 30;
};

/// The driver's view of an RMP with WQEs of 64 bytes.
struct HostRmp {
  std::uint32_t rmpn = 0;
  pcie::Iova ring = 0;
  pcie::Iova record = 0;
};

/// The driver's view of a QP.
struct HostQp {
  QpOptions options;
  std::uint32_t qpn = 0;
  pcie::Iova ring = 0;
  pcie::Iova record = 0;
  std::uint16_t send_producer = 0;
  std::uint16_t receive_producer = 0;

  std::uint64_t send_offset() const {
    const bool own_receives = options.srqn == 0 && !options.no_receive_queue;
    return own_receives ? std::uint64_t{64} << options.log_rq : 0;
  }
};

struct HostEvent {
  EventType type;
  std::uint32_t number;
};

/// Work budget (util::WorkBudget) of one turn of the device.
inline constexpr std::int64_t kTurn = 25'000;

class RdmaTestHost : public FakeHost {
 public:
  static constexpr std::uint16_t kUdpPort = 0xC001;
  static constexpr std::uint32_t kQkey = 0x11111111;

  explicit RdmaTestHost(HostOptions options = {});

  std::string_view text(pcie::Iova address, std::size_t size) {
    return {reinterpret_cast<const char*>(at(address)), size};
  }
  pcie::Iova put_text(std::string_view text);

  HostCq create_cq(unsigned log_size, unsigned stride = 64) {
    return FakeHost::create_cq(log_size, eqn, stride);
  }
  std::optional<HostCqe> poll(HostCq& cq);
  std::vector<HostCqe> poll_all(HostCq& cq);
  std::optional<HostEvent> poll_event();

  HostRmp create_rmp(unsigned log_size, spec::connectx::wq_type type = {});

  // QPs. Fills the context of CREATE_QP; a test may then change it.
  void fill_create(util::MutableView<spec::connectx::create_qp_in> in, const HostQp& qp);
  HostQp allocate_qp(const QpOptions& options);
  HostQp create_qp(const QpOptions& options = {});
  Reply modify(HostQp& qp, Opcode opcode, std::uint32_t mask = 0,
               const std::function<void(util::MutableView<qpc>)>& fill = {});
  Reply to_init(HostQp& qp);
  Reply to_rtr(HostQp& qp, std::uint32_t remote_qpn);
  Reply to_rts(HostQp& qp);
  Reply to_error(HostQp& qp);
  Reply to_reset(HostQp& qp);
  void destroy(HostQp& qp);
  /// Two QPs connected to each other, in RTS.
  std::pair<HostQp, HostQp> connected(const QpOptions& options = {}) {
    return connected(options, options);
  }
  std::pair<HostQp, HostQp> connected(const QpOptions& options, const QpOptions& of_peer);
  /// A UD QP in RTS.
  HostQp datagram_qp(QpOptions options = {.service = Service::UD});

  /// Writes a WQE to the ring and the counter to the doorbell record.
  void post_send(HostQp& qp, std::span<const std::byte> wqe);
  void ring_send(const HostQp& qp) { FakeHost::ring_send(qp.qpn); }
  void post_receive(HostQp& qp, pcie::Iova address, std::uint32_t length);
  std::uint32_t query_state(const HostQp& qp);

  /// Runs the RDMA side once, with the work budget of a whole turn.
  util::Time run_rdma();
  /// Runs device and fabric for `time`.
  void run(util::Duration time = std::chrono::microseconds(20)) { FakeHost::run(time); }

  rdma::Mac mac;
  rdma::Gid gid = rdma::Gid::from_ipv4(0xC0A80A01);
  std::uint32_t pd = 0;
  std::uint32_t eqn = 0;
  HostCq cq;

 private:
  pcie::Iova events_ = 0;
  std::uint32_t events_consumed_ = 0;
};

/// The key that maps all memory with all rights.
inline constexpr std::uint32_t kKey = RdmaTestHost::kKey;

}  // namespace softhca::connectx::test
