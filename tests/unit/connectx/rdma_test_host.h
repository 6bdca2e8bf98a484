// A host with one device whose RDMA side is under test: memory, CQs, one EQ, QPs, and a fabric that
// brings frames to their own address back.
//
// Commands are called as handlers, without the command queue; doorbells as the device's UAR code
// calls them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "connectx/command/command.h"
#include "connectx/device.h"
#include "connectx/event/completion_queue.h"
#include "connectx/qp/rdma.h"
#include "fabric/switch.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/qp.h"
#include "util/clock.h"

namespace softhca::connectx::testing {

using Opcode = spec::connectx::command_opcode;
using Service = spec::connectx::service_type;
using EventType = spec::connectx::event_type;
using CqeOpcode = spec::connectx::cqe_opcode;
using Syndrome = spec::connectx::cqe_syndrome;
using qpc = spec::connectx::qpc;
using ads = spec::connectx::ads;

/// A CQ as its driver sees it.
struct HostCq {
  std::uint32_t cqn = 0;
  unsigned log_size = 0;
  pcie::Iova ring = 0;
  pcie::Iova record = 0;
  std::uint32_t consumer = 0;
};

struct HostCqe {
  CqeOpcode opcode;
  std::uint32_t qpn;
  std::uint16_t wqe_counter;
  std::uint32_t byte_count;
  std::uint32_t user_index;
  std::uint32_t immediate;
  Syndrome syndrome;  ///< of an error
  std::uint8_t vendor_syndrome;
  Cqe bytes;
};

struct QpOptions {
  Service service = Service::RC;
  unsigned log_rq = 4;     ///< WQEs of 64 bytes
  unsigned log_sq = 5;     ///< basic blocks
  std::uint32_t srqn = 0;  ///< not 0: the RMP to take receives from
  std::uint32_t user_index = 0xFFFFFF;
  std::uint32_t pd = 0;  ///< 0: the host's
};

/// A QP as its driver sees it.
struct HostQp {
  QpOptions options;
  std::uint32_t qpn = 0;
  pcie::Iova ring = 0;
  pcie::Iova record = 0;
  std::uint16_t send_producer = 0;
  std::uint16_t receive_producer = 0;

  std::uint64_t send_offset() const {
    return options.srqn != 0 ? 0 : std::uint64_t{64} << options.log_rq;
  }
};

struct HostEvent {
  EventType type;
  std::uint32_t number;
};

class RdmaTestHost {
 public:
  static constexpr pcie::Iova kBase = 0x1000'0000;
  static constexpr std::size_t kMemory = 8u << 20;
  /// A key for all of memory by bus address, all rights.
  static constexpr std::uint32_t kKey = 0x5042;
  static constexpr std::uint16_t kUdpPort = 0xC001;
  static constexpr std::uint32_t kQkey = 0x11111111;

  RdmaTestHost();

  pcie::Iova allocate(std::size_t size, std::size_t alignment = 4096);
  std::byte* at(pcie::Iova address) { return memory_.get() + (address - kBase); }
  std::string_view text(pcie::Iova address, std::size_t size) {
    return {reinterpret_cast<const char*>(at(address)), size};
  }
  pcie::Iova put_text(std::string_view text);

  /// Runs a command handler; `fill` gets a MutableView of In. Output bytes, or why it was refused.
  template <class In, class Out, class Fill>
  tl::expected<std::vector<std::byte>, Refusal> execute(Opcode opcode, CommandHandler handler,
                                                        Fill&& fill,
                                                        std::span<const std::byte> tail = {}) {
    std::vector<std::byte> in(In::kSize + tail.size());
    std::vector<std::byte> out(Out::kSize + 64);
    fill(util::MutableView<In>(in));
    std::ranges::copy(tail, in.begin() + In::kSize);
    const Command command{static_cast<std::uint16_t>(opcode), 0, 0, in, out};
    if (auto result = handler(device, command); !result) return tl::unexpected(result.error());
    return out;
  }
  std::vector<std::byte> page_list(pcie::Iova address, std::size_t size);

  HostCq create_cq(unsigned log_size);
  std::optional<HostCqe> poll(HostCq& cq);
  std::vector<HostCqe> poll_all(HostCq& cq);
  std::optional<HostEvent> poll_event();

  // QPs. The context of CREATE_QP, before a test changes it.
  void fill_create(util::MutableView<spec::connectx::create_qp_in> in, const HostQp& qp);
  HostQp allocate_qp(const QpOptions& options);
  HostQp create_qp(const QpOptions& options = {});
  CommandResult modify(HostQp& qp, Opcode opcode, std::uint32_t mask = 0,
                       const std::function<void(util::MutableView<qpc>)>& fill = {});
  CommandResult to_init(HostQp& qp);
  CommandResult to_rtr(HostQp& qp, std::uint32_t remote_qpn);
  CommandResult to_rts(HostQp& qp);
  CommandResult to_error(HostQp& qp);
  CommandResult to_reset(HostQp& qp);
  void destroy(HostQp& qp);
  /// Two QPs connected to each other, in RTS.
  std::pair<HostQp, HostQp> connected(const QpOptions& options = {});
  /// A UD QP in RTS.
  HostQp datagram_qp(QpOptions options = {.service = Service::UD});

  /// Writes a WQE to the ring and the counter to the record.
  void post_send(HostQp& qp, std::span<const std::byte> wqe);
  void ring_send(HostQp& qp) { device.rdma().doorbell(Qpn(qp.qpn)); }
  void post_receive(HostQp& qp, pcie::Iova address, std::uint32_t length);
  std::uint32_t query_state(const HostQp& qp);

  /// Lets device and fabric work for `time`.
  void run(util::Duration time = std::chrono::microseconds(20));

  util::Time now{std::chrono::seconds(1)};
  fabric::Switch network;
  std::unique_ptr<fabric::Port> port = network.create_port("host");
  rdma::Mac mac = rdma::Mac::from_u64(0x0200'0000'0001);
  rdma::Gid gid = rdma::Gid::from_ipv4(0xC0A80A01);
  Device device;
  std::uint32_t pd = 0;
  std::uint32_t uar = 0;
  HostCq cq;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t used_ = 0;
  pcie::Iova events_ = 0;
  std::uint32_t events_consumed_ = 0;
};

}  // namespace softhca::connectx::testing
