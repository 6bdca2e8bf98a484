// Device::inspect_device: who the card is, its port, its objects, and how far its rings are. Of
// each kind of object the first are shown, and how many more there are.
#include <fmt/format.h>

#include <map>

#include "connectx/command/command_interface.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/send_queue.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/objects.h"
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
  out.add_hex("qpn", qp.qpn().value());
  out.add_hex("uar_page", qp.uar_page().value());
  out.add_hex("send_cqn", qp.send_cqn().value());
  out.add_hex("receive_cqn", qp.receive_cqn().value());
  if (qp.uses_srq()) out.add_hex("srqn", qp.srqn().value());
  qp.rdma_qp().inspect(out);
  if (qp.has_send_queue()) inspect_posted("send_queue", qp.send_ring(), out);
  if (qp.has_receive_queue()) inspect_posted("receive_queue", qp.receive_ring(), out);
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

void inspect_send_queue(const SendQueue& sq, util::InspectNode& list) {
  auto& out = list.child(fmt::format("sq {:#x}", sq.sqn().value()));
  out.add_hex("sqn", sq.sqn().value());
  out.add("state", to_string(sq.state()));
  out.add_hex("uar_page", sq.uar_page().value());
  out.add_hex("cqn", sq.cq().cqn().value());
  if (sq.tis() != nullptr) out.add_hex("tisn", sq.tis()->number.value());
  out.add("has_work", sq.has_work());
  inspect_posted("ring", sq.ring(), out);
}

void inspect_receive_queue(const ReceiveQueue& rq, util::InspectNode& list) {
  auto& out = list.child(fmt::format("rq {:#x}", rq.rqn().value()));
  out.add_hex("rqn", rq.rqn().value());
  out.add("state", to_string(rq.state()));
  out.add_hex("cqn", rq.cq().cqn().value());
  out.add("users", rq.users());
  out.add("dropped_since_last_cqe", rq.dropped());
  inspect_posted("ring", rq.ring(), out);
}

void inspect_flow_table(const FlowTable& table, util::InspectNode& list) {
  auto& out = list.child(fmt::format("flow_table {:#x}", table.id().value()));
  out.add_hex("table_id", table.id().value());
  out.add("level", table.attributes().level);
  out.add("size", table.size());
  out.add("groups", table.group_count());
  out.add("flows", table.flow_count());
  out.add("users", table.users());
  if (const auto* next = table.miss()) out.add_hex("miss_table_id", next->id().value());
}

void inspect_ethernet(Ethernet& ethernet, util::InspectNode& out) {
  inspect_list(
      out, "send_queues", [&](auto&& visit) { ethernet.send_queues().for_each(visit); },
      inspect_send_queue);
  inspect_list(
      out, "receive_queues", [&](auto&& visit) { ethernet.receive_queues().for_each(visit); },
      inspect_receive_queue);
  out.add("tirs", ethernet.tirs().count());
  out.add("tiss", ethernet.tiss().count());
  out.add("rq_tables", ethernet.rqts().count());
  auto& steering = ethernet.steering();
  if (const auto root = steering.root()) out.add_hex("root_flow_table", root->value());
  inspect_list(
      out, "flow_tables", [&](auto&& visit) { steering.for_each(visit); }, inspect_flow_table);
}

void inspect_memory_key(const rdma::MemoryKey& key, util::InspectNode& list) {
  auto& out = list.child(fmt::format("mkey {:#x}", key.key().value()));
  const auto& attributes = key.attributes();
  out.add_hex("mkey", key.key().value());
  out.add_hex("pd", attributes.pd.value());
  out.add_hex("start", attributes.start);
  out.add_hex("length", attributes.length);
  out.add("length64", attributes.whole_space);
  out.add("free", key.is_free());
  const auto may = [&](std::string_view name, std::uint8_t right) {
    out.add(name, (attributes.access & right) != 0);
  };
  may("local_write", rdma::kLocalWrite);
  may("remote_read", rdma::kRemoteRead);
  may("remote_write", rdma::kRemoteWrite);
  may("remote_atomic", rdma::kRemoteAtomic);
  out.add("pages", attributes.pages.size());
  out.add("keys", attributes.indirect.size());
}

void inspect_traffic(std::string_view name, const TrafficTable& table, util::InspectNode& parent) {
  const auto total = table.total();
  auto& out = parent.child(name);
  out.add("packets", total.packets);
  out.add("octets", total.octets);
}

void inspect_port(const NetworkPort& network, util::InspectNode& out) {
  out.add("admin_status", to_string(network.admin_status()));
  out.add("oper_status", to_string(network.oper_status()));
  out.add("vport_up", network.vport_is_up());
  out.add("mtu", network.mtu());
  out.add("frames_in_flight", network.in_flight());
  const auto& counters = network.counters();
  inspect_traffic("ethernet_received", counters.rx(Service::kEthernet, Way::kWire), out);
  inspect_traffic("ethernet_sent", counters.tx(Service::kEthernet, Way::kWire), out);
  inspect_traffic("rdma_received", counters.rx(Service::kRdma, Way::kWire), out);
  inspect_traffic("rdma_sent", counters.tx(Service::kRdma, Way::kWire), out);
  out.add("receive_discards", counters.all_received_discards());
  out.add("receive_errors", counters.received_errors.packets);
  out.add("transmit_errors", counters.transmit_errors.packets);
  out.add("transmit_discards", counters.transmitted_discards);
}

/// Of each set only what is not 0.
void inspect_q_counters(Resources& resources, util::InspectNode& out) {
  auto& list = out.list("q_counters");
  resources.for_each_q_counter([&](CounterSetId id, const QCounters& counters) {
    auto& set = list.child(fmt::format("set {:#x}", id.value()));
    set.add_hex("counter_set_id", id.value());
    for (const auto& info : rdma::qp_counter_table()) {
      if (counters.*info.value != 0) set.add(info.name, counters.*info.value);
    }
  });
}

void inspect_drops(const rdma::PortCounters& counters, util::InspectNode& out) {
  for (std::size_t i = 0; i != counters.dropped.size(); ++i) {
    const auto drop = static_cast<rdma::Drop>(i);
    out.add(rdma::to_string(drop), counters.dropped_for(drop));
  }
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
  inspect_port(*objects_->network_port, out.child("port"));
  inspect_commands(*commands_, out.child("commands"));
  inspect_resources(*objects_->resources, *objects_->memory_keys, out.child("resources"));
  inspect_list(
      out, "event_queues", [&](auto&& visit) { objects_->event_queues->for_each(visit); },
      inspect_event_queue);
  inspect_list(
      out, "completion_queues", [&](auto&& visit) { objects_->completion_queues->for_each(visit); },
      inspect_completion_queue);
  inspect_list(
      out, "memory_keys", [&](auto&& visit) { objects_->memory_keys->for_each(visit); },
      inspect_memory_key);
  inspect_q_counters(*objects_->resources, out);
  inspect_rdma(*objects_->rdma, out);
  inspect_drops(objects_->rdma->counters(), out.child("rdma_drops"));
  inspect_ethernet(*objects_->ethernet, out.child("ethernet"));
}

}  // namespace softhca::connectx
