// Device::inspect_device: who the card is, its port, and its queues.
#include <fmt/format.h>

#include <map>

#include "connectx/device.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/port/port_registers.h"
#include "connectx/qp/rdma.h"

namespace softhca::connectx {
namespace {

constexpr unsigned kQueuePairsShown = 64;

void inspect_queue_pair(const QueuePair& qp, util::InspectNode& out) {
  const auto& transport = qp.transport();
  out.add_hex("qpn", qp.qpn().value());
  out.add("type", rdma::to_string(transport.type()));
  out.add("state", rdma::to_string(transport.state()));
  out.add_hex("send_cqn", qp.send_cqn().value());
  out.add_hex("receive_cqn", qp.receive_cqn().value());
  out.add("next_send_psn", transport.next_send_psn());
  out.add("last_acked_psn", transport.last_acked_psn());
  out.add("next_receive_psn", transport.next_receive_psn());
  out.add("retries_left", transport.retries_left());
}

void inspect_queue_pairs(const Rdma& rdma, util::InspectNode& out) {
  unsigned count = 0;
  std::map<std::string_view, unsigned> by_state;
  rdma.for_each_qp([&](const QueuePair& qp) {
    ++count;
    ++by_state[rdma::to_string(qp.transport().state())];
  });
  auto& states = out.child("queue_pairs_by_state");
  for (const auto& [state, number] : by_state) states.add(state, number);
  auto& list = out.list("queue_pairs");
  unsigned shown = 0;
  rdma.for_each_qp([&](const QueuePair& qp) {
    if (shown++ >= kQueuePairsShown) return;
    inspect_queue_pair(qp, list.child(fmt::format("qp {:#x}", qp.qpn().value())));
  });
  if (count > kQueuePairsShown) out.add("queue_pairs_not_shown", count - kQueuePairsShown);
}

}  // namespace

void Device::inspect_device(util::InspectNode& out) const {
  auto& card = out.child("card");
  card.add_hex("mac", options_.mac.to_u64());
  card.add_hex("node_guid", options_.node_guid);
  auto& port = out.child("port");
  port.add("admin_up", parts_->port_registers->admin_up());
  port.add("oper_up", parts_->port_registers->oper_up());
  port.add("mtu", parts_->port_registers->oper_mtu());
  unsigned eqs = 0, cqs = 0;
  parts_->event_queues->for_each([&eqs](const EventQueue&) { ++eqs; });
  parts_->completion_queues->for_each([&cqs](const CompletionQueue&) { ++cqs; });
  out.add("event_queues", eqs);
  out.add("completion_queues", cqs);
  inspect_queue_pairs(*parts_->rdma, out);
}

}  // namespace softhca::connectx
