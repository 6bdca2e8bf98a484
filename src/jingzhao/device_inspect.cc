// Inspection of the device.
#include <fmt/format.h>

#include <utility>

#include "jingzhao/device.h"

namespace softhca::jingzhao {

namespace {

void inspect_cache(std::string_view name, const IcmCache& cache, util::InspectNode& parent) {
  auto& out = parent.child(name);
  const auto& counters = cache.counters();
  out.add_hex("base", cache.table().base);
  out.add("entries", cache.size());
  out.add("capacity", cache.capacity());
  out.add("hits", counters.hits);
  out.add("misses", counters.misses);
  out.add("evictions", counters.evictions);
  out.add("write_backs", counters.write_backs);
  out.add("lost", counters.lost);
}

void inspect_queue_pair(const QueuePair& qp, util::InspectNode& list) {
  auto& out = list.child(fmt::format("qp {:#x}", qp.qpn().value()));
  out.add_hex("qpn", qp.qpn().value());
  out.add_hex("send_cqn", qp.send_cqn().value());
  out.add_hex("receive_cqn", qp.receive_cqn().value());
  out.add("receive_place", qp.receives().place());
  qp.rdma_qp().inspect(out);
}

void inspect_cq(const CompletionQueues::Shown& cq, util::InspectNode& list) {
  auto& out = list.child(fmt::format("cq {:#x}", cq.cqn.value()));
  out.add_hex("cqn", cq.cqn.value());
  out.add("log_size", cq.log_count);
  out.add("producer", cq.producer);
  out.add_hex("comp_eqn", cq.eqn.value());
  out.add("armed", cq.armed);
  out.add("failed", cq.failed);
}

void inspect_eq(const EventQueues::Shown& eq, util::InspectNode& list) {
  auto& out = list.child(fmt::format("eq {:#x}", eq.eqn.value()));
  out.add_hex("eqn", eq.eqn.value());
  out.add("log_size", eq.log_count);
  out.add("producer", eq.producer);
  out.add("armed", eq.armed);
  out.add("vector", eq.vector);
}

void inspect_drops(const rdma::PortCounters& counters, util::InspectNode& out) {
  for (std::size_t i = 0; i != counters.dropped.size(); ++i) {
    const auto drop = static_cast<rdma::Drop>(i);
    out.add(rdma::to_string(drop), counters.dropped_for(drop));
  }
}

void inspect_icm(std::string_view name, const Icm& icm, util::InspectNode& parent) {
  auto& out = parent.child(name);
  out.add("pages", icm.pages());
  out.add("chunks", icm.chunks());
}

void inspect_agent(const subnet::Agent& agent, util::InspectNode& out) {
  constexpr std::uint8_t kPort = 1;
  out.add("lid", agent.lid(kPort).value());
  out.add("state", to_string(agent.state(kPort)));
  out.add("smps_answered", agent.counters().answered);
  out.add("smps_refused", agent.counters().refused);
  out.add("smps_discarded", agent.counters().discarded);
}

/// `objects`: null before INIT_HCA. Makes the same calls in the same order in either case.
void inspect_objects(const Objects* objects, util::Inspection& out) {
  const auto part = [&](std::string_view name, auto&& fill) {
    out.part(name, [&](util::InspectNode& node) {
      if (objects != nullptr) fill(node);
    });
  };
  part("icm_cache", [&](util::InspectNode& node) {
    inspect_cache("qpc", objects->queue_pairs->contexts(), node);
    inspect_cache("cqc", objects->completion_queues->contexts(), node);
    inspect_cache("eqc", objects->event_queues->contexts(), node);
    inspect_cache("mpt", objects->memory_keys->mpts(), node);
    inspect_cache("mtt", objects->memory_keys->mtts(), node);
  });
  part("memory_keys", [&](util::InspectNode& node) {
    node.add("installed", objects->memory_keys->count());
    node.add("at_hand", objects->memory_keys->cached());
    node.add("pages_at_hand", objects->memory_keys->cached_pages());
  });
  part("events", [&](util::InspectNode& node) {
    const auto& counters = objects->event_queues->counters();
    node.add("posted", counters.posted);
    node.add("unmapped", counters.unmapped);
    node.add("dropped", counters.dropped);
  });
  const bool there = objects != nullptr;
  const auto number = [](std::uint64_t place) { return static_cast<std::uint32_t>(place); };
  out.list(
      {.name = "event_queues",
       .end = there ? objects->event_queues->end() : 0,
       .count = std::nullopt,
       .there = there},
      [&](std::uint64_t place) { return objects->event_queues->show(Eqn(number(place))); },
      inspect_eq);
  out.list(
      {.name = "completion_queues",
       .end = there ? objects->completion_queues->end() : 0,
       .count = there ? objects->completion_queues->count() : 0,
       .there = there},
      [&](std::uint64_t place) { return objects->completion_queues->show(Cqn(number(place))); },
      inspect_cq);
  const auto find = [&](std::uint64_t place) {
    return std::as_const(*objects->queue_pairs).find(Qpn(number(place)));
  };
  const auto end = there ? objects->queue_pairs->end() : 0;
  out.tally("queue_pairs_by_state", end, [&](std::uint64_t place) {
    const auto* qp = find(place);
    return qp == nullptr ? std::string_view() : rdma::to_string(qp->rdma_qp().state());
  });
  out.list({.name = "queue_pairs",
            .end = end,
            .count = there ? objects->queue_pairs->count() : 0,
            .there = there},
           find, inspect_queue_pair);
  part("rdma_drops",
       [&](util::InspectNode& node) { inspect_drops(objects->queue_pairs->counters(), node); });
}

}  // namespace

void Device::inspect_device(util::Inspection& out) const {
  out.part("card", [&](util::InspectNode& card) {
    card.add_hex("board_id", options_.board_id);
    card.add("initialized", objects_ != nullptr);
    card.add("link_up", port_->link_up());
  });
  out.part("port", [&](util::InspectNode& port) {
    port.add("packets_sent", port_->counters().sent);
    port.add("packets_looped_back", port_->counters().looped);
    port.add("packets_received", port_->counters().received);
    port.add("packets_discarded", port_->counters().discarded);
    if (infiniband_ != nullptr) inspect_agent(infiniband_->agent(), port);
  });
  out.part("commands", [&](util::InspectNode& commands) {
    commands.add("executed", commands_.executed);
    commands.add("refused", commands_.refused);
  });
  out.part("icm", [&](util::InspectNode& icm) {
    inspect_icm("queue_contexts", contexts_, icm);
    inspect_icm("memory_tables", memory_, icm);
  });
  inspect_objects(objects_.get(), out);
}

}  // namespace softhca::jingzhao
