// Device::inspect_device: the identity of the card, its port, its objects, and the progress of its
// rings as far as the device knows it. Nothing is read from the guest's memory.
#include <fmt/format.h>

#include "connectx/command/command_interface.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/send_queue.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/function/capabilities.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/objects.h"
#include "connectx/port/network_port.h"
#include "connectx/qp/rdma.h"
#include "connectx/queue/shared_doorbells.h"
#include "connectx/steering/flow_table.h"

namespace softhca::connectx {
namespace {

/// Lists the objects of a table by their numbers.
template <class T, class Number, class Show>
void inspect_table(util::Inspection& out, std::string_view name,
                   const hca::ObjectTable<T, Number>& table, Show&& show) {
  out.list(
      {.name = name, .end = table.end(), .count = table.count(), .begin = table.first()},
      [&](std::uint64_t place) {
        return table.find(Number(static_cast<typename Number::Value>(place)));
      },
      show);
}

void inspect_ring(const hca::PublishedRing& ring, util::InspectNode& out) {
  out.add("entries", ring.size());
  out.add("producer", ring.producer());
  out.add("consumer", ring.consumer());
}

/// Shows the posted entries that the device has noted from the doorbell record.
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
  out.add("kind", to_string(srq.attributes().kind));
  out.add("failed", srq.failed());
  out.add("limit", srq.limit());
  out.add("queue_pairs", srq.users());
  inspect_posted("receive_queue", srq.chain(), out);
}

void inspect_queue_pair(const QueuePair& qp, util::InspectNode& list) {
  auto& out = list.child(fmt::format("qp {:#x}", qp.qpn().value()));
  out.add_hex("qpn", qp.qpn().value());
  const auto& context = qp.context();
  out.add_hex("uar_page", context.uar_page().value());
  out.add_hex("send_cqn", context.send_cqn().value());
  out.add_hex("receive_cqn", context.receive_cqn().value());
  if (context.uses_srq()) out.add_hex("srqn", context.srqn().value());
  qp.rdma_qp().inspect(out);
  if (context.has_send_queue()) inspect_posted("send_queue", qp.send_queue().ring(), out);
  if (context.has_receive_queue()) inspect_posted("receive_queue", qp.receive_queue().ring(), out);
}

void inspect_dct(const Dct& dct, util::InspectNode& list) {
  auto& out = list.child(fmt::format("dct {:#x}", dct.dctn().value()));
  out.add_hex("dctn", dct.dctn().value());
  out.add_hex("cqn", dct.cqn().value());
  out.add_hex("srqn", dct.srqn().value());
  out.add("state", to_string(dct.state));
  out.add("failed", dct.failed);
  out.add("armed", dct.armed);
}

void inspect_rdma(const Rdma& rdma, util::Inspection& out) {
  const auto& queue_pairs = rdma.queue_pairs();
  const auto first = queue_pairs.first();
  out.tally("queue_pairs_by_state", queue_pairs.end() - first, [&](std::uint64_t place) {
    const auto* qp = queue_pairs.find(Qpn(static_cast<std::uint32_t>(first + place)));
    return qp == nullptr ? std::string_view() : rdma::to_string(qp->rdma_qp().state());
  });
  inspect_table(out, "queue_pairs", queue_pairs, inspect_queue_pair);
  inspect_table(out, "dcts", rdma.dcts().all(), inspect_dct);
  inspect_table(out, "shared_receive_queues", rdma.shared_queues().all(), inspect_srq);
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
  out.add("type", to_string(table.attributes().type));
  out.add("level", table.attributes().level);
  out.add("size", table.size());
  out.add("groups", table.group_count());
  out.add("flows", table.flow_count());
  out.add("users", table.users());
  if (const auto* next = table.miss()) out.add_hex("miss_table_id", next->id().value());
}

void inspect_ethernet(Ethernet& ethernet, util::Inspection& out) {
  inspect_table(out, "send_queues", ethernet.send_queues(), inspect_send_queue);
  inspect_table(out, "receive_queues", ethernet.receive_queues(), inspect_receive_queue);
  const auto& steering = ethernet.steering();
  out.values([&](util::InspectNode& node) {
    node.add("tirs", ethernet.tirs().count());
    node.add("tiss", ethernet.tiss().count());
    node.add("flow_counters", steering.counters().count());
    node.add("rq_tables", ethernet.rqts().count());
    if (const auto root = steering.root(FlowSteering::Type::NIC_RX))
      node.add_hex("root_flow_table", root->value());
  });
  inspect_table(out, "flow_tables", steering.all(), inspect_flow_table);
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
  out.add("keys", key.pieces());
}

void inspect_memory_keys(MemoryKeys& keys, util::Inspection& out) {
  out.list(
      {.name = "memory_keys",
       .end = keys.end(),
       .count = keys.count(),
       .shift = MemoryKeys::kVariantBits},
      [&](std::uint64_t place) { return keys.find(MKeyIndex(static_cast<std::uint32_t>(place))); },
      inspect_memory_key);
}

void inspect_traffic(std::string_view name, const TrafficTable& table, util::InspectNode& parent) {
  const auto total = table.total();
  auto& out = parent.child(name);
  out.add("packets", total.packets);
  out.add("octets", total.octets);
}

void inspect_port(const NetworkPort& network, util::InspectNode& out) {
  out.add("admin_status", to_string(network.state().admin_status()));
  out.add("oper_status", to_string(network.state().oper_status()));
  out.add("vport_up", network.state().vport_is_up());
  out.add("mtu", network.state().mtu());
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

/// Shows the Q counters that are not 0.
void inspect_q_counters(Resources& resources, util::Inspection& out) {
  const auto find = [&](std::uint64_t place) -> std::optional<CounterSetId> {
    const CounterSetId id(static_cast<CounterSetId::Value>(place));
    return resources.q_counter(id) == nullptr ? std::nullopt : std::optional(id);
  };
  out.list({.name = "q_counters",
            .end = resources.q_counters_end(),
            .count = resources.q_counter_count()},
           find, [&](CounterSetId id, util::InspectNode& list) {
             auto& set = list.child(fmt::format("set {:#x}", id.value()));
             set.add_hex("counter_set_id", id.value());
             const auto& counters = *resources.q_counter(id);
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
  out.add("signature_values", keys.psvs().count());
  out.add("translations", resources.translations().total() - resources.translations().left());
}

}  // namespace

void Device::inspect_device(util::Inspection& out) const {
  out.part("card", [&](util::InspectNode& card) {
    card.add_hex("mac", options_.mac.to_u64());
    card.add_hex("node_guid", options_.node_guid);
    card.add("health", to_string(health_.syndrome()));
  });
  const auto& objects = driver_.objects();
  out.part("port", [&](auto& node) { inspect_port(*objects.network_port, node); });
  out.part("commands", [&](auto& node) { inspect_commands(*commands_, node); });
  out.part("resources",
           [&](auto& node) { inspect_resources(*objects.resources, *objects.memory_keys, node); });
  out.part("doorbells", [&](auto& node) { doorbells_.inspect(node); });
  inspect_table(out, "event_queues", objects.event_queues->all(), inspect_event_queue);
  inspect_table(out, "completion_queues", objects.completion_queues->all(),
                inspect_completion_queue);
  inspect_memory_keys(*objects.memory_keys, out);
  inspect_q_counters(*objects.resources, out);
  inspect_rdma(*objects.rdma, out);
  out.part("rdma_drops", [&](auto& node) { inspect_drops(objects.rdma->counters(), node); });
  out.group("ethernet", [&] { inspect_ethernet(*objects.ethernet, out); });
  if (companion_ != nullptr) companion_->inspect(driver_.capabilities().general(), out);
}

}  // namespace softhca::connectx
