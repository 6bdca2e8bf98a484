// A guest that writes anything into its work queues.
//
// The first byte of the input chooses. Even: the rest is one send WQE, decoded for one of the
// services, and a scatter list. Odd: the rest is a script for a device with an RC and a UD queue
// pair on an SRQ. Each record writes bytes to a queue, moves a doorbell record, rings, lets time
// pass, or changes a QP's state. Whatever happens, the device stays within its memory, becomes
// idle, and can give the queue pairs back.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <vector>

#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/send_wqe.h"
#include "connectx/queue/receive_wqe.h"
#include "connectx_world.h"
#include "spec/connectx/wqe.h"

namespace {

using namespace softhca;
using namespace softhca::connectx;
using connectx::test::HostQp;
using connectx::test::RdmaTestHost;
using connectx::test::Service;
using fuzz::check;
using fuzz::Script;

// One WQE --------------------------------------------------------------------------------------

void fuzz_decoder(Script input) {
  constexpr std::uint32_t kQpn = 0x41;
  constexpr rdma::QpType kTypes[] = {rdma::QpType::kRc, rdma::QpType::kUc, rdma::QpType::kUd,
                                     rdma::QpType::kXrcInitiator, rdma::QpType::kDcInitiator};
  const SendWqeRules rules{.type = kTypes[input.byte() % std::size(kTypes)],
                           .qpn = rdma::Qpn(kQpn),
                           .atomics = input.byte() % 2 == 0};
  const auto bytes = input.take(kSendWqeMax);
  if (bytes.size() < kWqeUnit) return;
  std::vector<std::byte> wqe(bytes.begin(), bytes.end());
  wqe.resize(wqe.size() / kWqeUnit * kWqeUnit);
  // Otherwise hardly any input would pass the first two checks.
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  const util::MutableView<Ctrl> ctrl(wqe);
  ctrl.set(Ctrl::sq_number, kQpn);
  ctrl.set(Ctrl::wqe_index, 7);
  rdma::SendRequest request;
  const auto fault = decode_send_wqe(wqe, SendWqeControl::parse(wqe), 7, rules, request);
  check(request.inline_data.size() <= wqe.size());
  check(request.sges.size() <= wqe.size() / kWqeUnit);
  check(fault != WqeFault::kNone || !(request.is_inline && !request.sges.empty()));
  check(!describe(fault).text.empty() || fault == WqeFault::kNone);

  std::vector<rdma::Sge> sges;
  decode_scatter_list(wqe, sges);
  check(sges.size() <= wqe.size() / kWqeUnit);
  check(std::ranges::none_of(sges, [](const auto& sge) { return sge.length == 0; }));
}

// A device -------------------------------------------------------------------------------------

enum class Action : std::uint8_t {
  kSendBytes,     ///< QP, block, bytes: into the ring
  kPostSend,      ///< QP, bytes: a WQE with the right index and QPN, posted, with doorbell
  kSendCounter,   ///< QP, counter: into the record, with doorbell
  kReceiveBytes,  ///< place, bytes
  kReceiveCounter,
  kSharedBytes,
  kSharedCounter,
  kTime,
  kState,     ///< QP, target: to ERR, to RST, to RTS again
  kUnmapped,  ///< the memory disappears and returns
  kCount,
};

/// A device with an RC QP that receives from an RMP, and a UD QP with 16 receives of its own. Both
/// have 16 send blocks and are connected to themselves.
class World {
 public:
  void play(Script& input) {
    host_.turn = fuzz::run_turn;
    for (auto& qp : qps_) connect(qp);
    while (!input.empty()) step(input);
    host_.run(std::chrono::milliseconds(2));
    tear_down();
  }

 private:
  static constexpr unsigned kLogSize = 4;

  void connect(HostQp& qp) {
    (void)host_.to_init(qp);
    (void)host_.to_rtr(qp, qp.qpn);
    (void)host_.to_rts(qp);
  }
  /// Writes bytes into a block of a ring with 16 blocks.
  void put(pcie::Iova ring, std::size_t block, std::span<const std::byte> bytes) {
    const std::size_t offset = block % 16 * 64;
    std::memcpy(host_.at(ring) + offset, bytes.data(), std::min(bytes.size(), 1024 - offset));
  }
  void step(Script& input);
  void post_send(const HostQp& qp, std::span<const std::byte> bytes);
  void change_state(HostQp& qp, unsigned how);
  void tear_down();

  RdmaTestHost host_{{.memory_size = 1u << 18}};
  connectx::test::HostRmp rmp_ = host_.create_rmp(kLogSize);
  std::array<HostQp, 2> qps_{
      host_.create_qp({.service = Service::RC, .log_sq = kLogSize, .srqn = rmp_.rmpn}),
      host_.create_qp({.service = Service::UD, .log_rq = kLogSize, .log_sq = kLogSize})};
};

/// Sets the right index and QPN.
void World::post_send(const HostQp& qp, std::span<const std::byte> bytes) {
  auto* const record = host_.at(qp.record);
  const auto producer = static_cast<std::uint16_t>(util::load_be32(record + 4));
  std::array<std::byte, 128> wqe{};
  std::ranges::copy(bytes, wqe.begin());
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  const util::MutableView<Ctrl> ctrl(wqe);
  ctrl.set(Ctrl::wqe_index, producer);
  ctrl.set(Ctrl::sq_number, qp.qpn);
  const auto ring = qp.ring + qp.send_offset();
  put(ring, producer, std::span(wqe).first(64));
  put(ring, producer + 1u, std::span(wqe).last(64));
  util::store_be32(record + 4, producer + 2u);
  host_.ring_send(qp);
}

void World::change_state(HostQp& qp, unsigned how) {
  if (how & 2) (void)host_.to_error(qp);
  if (how & 4) (void)host_.to_reset(qp);
  if (how & 8) connect(qp);
}

void World::step(Script& input) {
  const auto action = static_cast<Action>(input.byte() % static_cast<unsigned>(Action::kCount));
  const auto which = input.byte();
  auto& qp = qps_[which % 2];
  const auto& datagrams = qps_[1];
  switch (action) {
    case Action::kSendBytes:
      return put(qp.ring + qp.send_offset(), which / 2, input.take(64));
    case Action::kPostSend:
      return post_send(qp, input.take(128));
    case Action::kSendCounter:
      util::store_be32(host_.at(qp.record) + 4, input.word());
      return host_.ring_send(qp);
    case Action::kReceiveBytes:
      return put(datagrams.ring, which, input.take(64));
    case Action::kReceiveCounter:
      return util::store_be32(host_.at(datagrams.record), input.word());
    case Action::kSharedBytes:
      return put(rmp_.ring, which, input.take(64));
    case Action::kSharedCounter:
      return util::store_be32(host_.at(rmp_.record), input.word());
    case Action::kTime:
      host_.run(std::chrono::microseconds(which * 16));
      (void)host_.poll_all(host_.cq);
      return;
    case Action::kState:
      return change_state(qp, which);
    case Action::kUnmapped:
      host_.unmap();
      host_.run(std::chrono::microseconds(10));
      return host_.map();
    case Action::kCount:
      return;
  }
}

void World::tear_down() {
  for (auto& qp : qps_) host_.destroy(qp);
  host_.run(std::chrono::milliseconds(2));
  check(host_.run_rdma() == util::kNever);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::prepare_connectx();
  return fuzz::run_input([&] {
    Script script(data, size);
    if (script.byte() % 2 == 0) {
      fuzz_decoder(script);
    } else {
      World().play(script);
    }
  });
}
