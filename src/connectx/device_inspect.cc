// Device::inspect_device: who the card is, its port, its objects, and how far its rings are. Of
// each kind of object the first are shown, and how many more there are.
#include <fmt/format.h>

#include <map>

#include "connectx/command/command_interface.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/send_queue.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/port/network_port.h"
#include "connectx/qp/rdma.h"
#include "connectx/steering/flow_table.h"

namespace softhca::connectx {
namespace {

constexpr std::size_t kShown = 64;

/// A list of the first objects that `for_each` visits; `show` fills in one.
template <class ForEach, class Show>
void inspect_list(util::InspectNode& out, std::string_view name, ForEach&& for_each, Show&& show) {
  auto& list = out.list(name);
  std::size_t count = 0;
  for_each([&](auto& object) {
    if (count++ < kShown) show(object, list);
  });
  if (count > kShown) out.add(fmt::format("{}_not_shown", name), count - kShown);
}

void inspect_ring(const hca::PublishedRing& ring, util::InspectNode& out) {
  out.add("entries", ring.size());
  out.add("producer", ring.producer());
  out.add("consumer", ring.consumer());
}

/// What was posted is shown as far as the device has looked.
void inspect_posted(std::string_view name, const hca::PostedCounter& posted,
                    util::InspectNode& parent) {
  auto& out = parent.child(name);
  out.add("entries", posted.size());
  out.add("consumed", posted.consumed());
  out.add("known", posted.known());
}

void inspect_event_queue(const EventQueue& eq, util::InspectNode& list) {
  auto& out = list.child(fmt::format("eq {:#x}", eq.eqn().value()));
  out.add_hex("eqn", eq.eqn().value());
  out.add("vector", eq.attributes().vector);
  out.add("status", to_string(eq.status()));
  out.add("armed", eq.armed());
  out.add("completion_queues", eq.users());
  inspect_ring(eq.ring(), out);
}

void inspect_completion_queue(const CompletionQueue& cq, util::InspectNode& list) {
  auto& out = list.child(fmt::format("cq {:#x}", cq.cqn().value()));
  out.add_hex("cqn", cq.cqn().value());
  out.add_hex("eqn", cq.attributes().eqn.value());
  out.add_hex("uar_page", cq.attributes().uar_page.value());
  out.add("status", to_string(cq.status()));
  out.add("armed", to_string(cq.arm_state()));
  out.add("queues", cq.users());
  inspect_ring(cq.ring(), out);
  out.add("last_notified", cq.last_notified());
}

void inspect_srq(const SharedReceiveQueue& srq, util::InspectNode& list) {
  auto& out = list.child(fmt::format("srq {:#x}", srq.number().value()));
  out.add_hex("srqn", srq.number().value());
  out.add("kind", srq.attributes().kind == SharedReceiveQueue::Kind::kRmp ? "RMP" : "XRC SRQ");
  out.add("failed", srq.failed());
  out.add("limit", srq.limit());
  out.add("queue_pairs", srq.users());
  inspect_posted("receive_queue", srq.chain(), out);
}

void inspect_queue_pair(const QueuePair& qp, util::InspectNode& list) {
  auto& out = list.child(fmt::format("qp {:#x}", qp.qpn().value()));
  const auto& transport = qp.rdma_qp();
  out.add_hex("qpn", qp.qpn().value());
  out.add("type", rdma::to_string(transport.type()));
  out.add("state", rdma::to_string(transport.state()));
  out.add_hex("uar_page", qp.uar_page().value());
  out.add_hex("send_cqn", qp.send_cqn().value());
  out.add_hex("receive_cqn", qp.receive_cqn().value());
  out.add("next_send_psn", transport.next_send_psn());
  out.add("last_acked_psn", transport.last_acked_psn());
  out.add("next_receive_psn", transport.next_receive_psn());
  out.add("retries_left", transport.retries_left());
  if (qp.has_send_queue()) inspect_posted("send_queue", qp.send_ring(), out);
  if (qp.has_receive_queue()) inspect_posted("receive_queue", qp.receive_ring(), out);
  if (qp.uses_srq()) out.add_hex("srqn", qp.srqn().value());
}

void inspect_rdma(const Rdma& rdma, util::InspectNode& out) {
  std::map<std::string_view, unsigned> by_state;
  rdma.for_each_qp([&](const QueuePair& qp) { ++by_state[rdma::to_string(qp.rdma_qp().state())]; });
  auto& states = out.child("queue_pairs_by_state");
  for (const auto& [state, number] : by_state) states.add(state, number);
  inspect_list(
      out, "queue_pairs", [&](auto&& visit) { rdma.for_each_qp(visit); }, inspect_queue_pair);
  inspect_list(
      out, "shared_receive_queues", [&](auto&& visit) { rdma.for_each_srq(visit); }, inspect_srq);
}

void inspect_ethernet(Ethernet& ethernet, util::InspectNode& out) {
  inspect_list(
      out, "send_queues", [&](auto&& visit) { ethernet.send_queues().for_each(visit); },
      [](const SendQueue& sq, util::InspectNode& list) {
        auto& node = list.child(fmt::format("sq {:#x}", sq.sqn().value()));
        node.add_hex("sqn", sq.sqn().value());
        node.add("state", to_string(sq.state()));
        node.add("has_work", sq.has_work());
      });
  inspect_list(
      out, "receive_queues", [&](auto&& visit) { ethernet.receive_queues().for_each(visit); },
      [](const ReceiveQueue& rq, util::InspectNode& list) {
        auto& node = list.child(fmt::format("rq {:#x}", rq.rqn().value()));
        node.add_hex("rqn", rq.rqn().value());
        node.add("state", to_string(rq.state()));
      });
  auto& steering = out.child("steering");
  steering.add("tirs", ethernet.tirs().count());
  steering.add("rq_tables", ethernet.rqts().count());
  steering.add("flow_tables", ethernet.steering().table_count());
  const auto& flows = ethernet.steering().flows();
  steering.add("flows", flows.total() - flows.left());
}

void inspect_commands(const CommandInterface& commands, util::InspectNode& out) {
  std::uint64_t executed = 0;
  std::uint64_t refused = commands.unknown_opcodes();
  for (const auto& counters : commands.counters()) {
    executed += counters.executed;
    refused += counters.refused;
  }
  out.add("executed", executed);
  out.add("refused", refused);
  out.add("undelivered", commands.undelivered());
}

void inspect_resources(Resources& resources, const MemoryKeys& keys, util::InspectNode& out) {
  out.add("protection_domains", resources.pds().count());
  out.add("doorbell_pages", resources.uars().count());
  out.add("transport_domains", resources.transport_domains().count());
  out.add("xrc_domains", resources.xrcds().count());
  out.add("memory_keys", keys.count());
  out.add("translations", resources.translations().total() - resources.translations().left());
}

}  // namespace

void Device::inspect_device(util::InspectNode& out) const {
  auto& card = out.child("card");
  card.add_hex("mac", options_.mac.to_u64());
  card.add_hex("node_guid", options_.node_guid);
  card.add("health", to_string(health_.syndrome()));
  auto& port = out.child("port");
  const auto& network = *parts_->network_port;
  port.add("admin_status", to_string(network.admin_status()));
  port.add("oper_status", to_string(network.oper_status()));
  port.add("vport_up", network.vport_is_up());
  port.add("mtu", network.mtu());
  inspect_commands(*parts_->commands, out.child("commands"));
  inspect_resources(*parts_->resources, *parts_->memory_keys, out.child("resources"));
  inspect_list(
      out, "event_queues", [&](auto&& visit) { parts_->event_queues->for_each(visit); },
      inspect_event_queue);
  inspect_list(
      out, "completion_queues", [&](auto&& visit) { parts_->completion_queues->for_each(visit); },
      inspect_completion_queue);
  inspect_rdma(*parts_->rdma, out);
  inspect_ethernet(*parts_->ethernet, out.child("ethernet"));
}

}  // namespace softhca::connectx
