// Contexts::inspect: the contents of a context's structures, and the function's progress with it.
#include <fmt/format.h>

#include "sdxi/contexts.h"
#include "sdxi/key_inspect.h"

namespace softhca::sdxi {
namespace {

/// Cost of the walk to a context: a few reads of mapped memory.
constexpr std::int64_t kWalkWork = 1000;

void inspect_refusal(const Refusal& refusal, util::InspectNode& out) {
  out.add("invalid", fmt::format("{}: {} ({:#x}) [{}]", to_string(refusal.step), refusal.reason,
                                 refusal.value, refusal.section));
}

void inspect_ring(const ContextEntry& entry, const AddressSpace& space, util::InspectNode& out) {
  auto& ring = out.child("ring");
  ring.add_hex("ds_ring_ptr", entry.ds_ring_ptr);
  ring.add("ds_ring_sz", entry.ds_ring_sz);
  const auto read = space.load64(entry.read_index());
  const auto write = space.load64(entry.write_index_ptr);
  if (read) ring.add("read_index", *read);
  if (write) ring.add("write_index", *write);
  if (read && write && *write >= *read) ring.add("filled", *write - *read);
  if (!read || !write) return inspect_unreadable("indices", ring);
  if (*read == *write) return;
  std::array<std::byte, spec::kDescriptorSize> bytes{};
  if (!space.load_words(entry.descriptor(*read), bytes)) {
    return inspect_unreadable("descriptors", ring);
  }
  const auto header = util::View<spec::dsc_generic>(bytes).get(spec::dsc_generic::header);
  const auto* operation =
      find_operation(header.get(spec::dsc_header::type), header.get(spec::dsc_header::subtype));
  auto& next = ring.child("at_read_index");
  next.add("valid", header.get(spec::dsc_header::vl) != 0);
  next.add("operation", operation == nullptr ? "unknown" : operation->name);
}

void inspect_execution(const Execution& execution, util::InspectNode& out) {
  if (!execution.executing) return;
  auto& flight = out.child("in_flight");
  flight.add("descriptor", execution.index);
  flight.add("operation", execution.operation->name);
  flight.add("done", execution.done);
  if (execution.injected.hold != 0) flight.add("held_by_fault", execution.injected.hold);
}

void inspect_held(const Context& context, std::uint64_t doorbell, util::InspectNode& out) {
  auto& work = out.child("work");
  work.add("doorbell", doorbell);
  work.add("read_index", context.read_index);
  work.add("write_index", context.write_index);
  work.add("queued", context.queued());
  work.add("waits_for_valid", context.waits_for_valid);
  work.add("waits_for_others", context.waits_for_others);
  work.add("stopping", context.stop.begun);
  if (context.stop.hang != 0) work.add("stop_hangs_by_fault", context.stop.hang);
  inspect_execution(context.execution, work);
}

}  // namespace

/// The inspected parts of a context.
struct Contexts::Seen {
  ContextNumber number;
  const Context* held;  ///< null: it never ran, or no longer runs
  ContextResult<ContextEntry> walked;
  bool not_mapped;  ///< the walk would have needed messages
};

std::optional<Contexts::Seen> Contexts::look_at(ContextNumber number, util::Inspection& out) const {
  pcie::LocalMemoryOnly::take_refusal();
  Seen seen{number, set_.find_active(number), parts_.tables.walk(number), false};
  seen.not_mapped = pcie::LocalMemoryOnly::take_refusal();
  if (seen.not_mapped) out.unreadable(number, kNotMapped);
  if (seen.held != nullptr || seen.walked) return seen;
  const bool shown = seen.walked.error().log_err && !seen.not_mapped;
  return shown ? std::optional(seen) : std::nullopt;
}

void Contexts::inspect_one(const Seen& seen, util::InspectNode& list) const {
  auto& one = list.child(fmt::format("context {}", seen.number));
  one.add("number", seen.number);
  if (seen.walked) {
    inspect_entry(*seen.walked, one);
  } else if (seen.not_mapped) {
    one.add("tables", kNotMapped);
  } else if (const auto& refusal = seen.walked.error().log_err) {
    inspect_refusal(*refusal, one);
  } else {
    one.add("invalid", "the tables do not lead to it any more");
  }
  if (const auto* context = set_.find(seen.number)) {
    auto& counters = one.child("counters");
    counters.add("descriptors", context->descriptors);
    counters.add("bytes", context->bytes);
  }
  if (seen.held != nullptr) inspect_held(*seen.held, doorbells_.value(seen.number), one);
}

void Contexts::inspect(util::Inspection& out) const {
  // The workers wait only in the turns in which there is something to inspect.
  const pcie::Paused workers_wait(out.wants(2) ? &parts_.workers.gate() : nullptr);
  // The tables of a stopped function are not set up yet, or no longer.
  const bool runs = parts_.registers.gsv() != spec::fn_gsv::GSV_STOP;
  out.values([&](util::InspectNode& node) {
    if (!runs) return;
    auto& totals = node.child("totals");
    const auto sums = statistics();
    totals.add("descriptors", sums.descriptors);
    totals.add("bytes", sums.bytes);
    totals.add("errors", sums.errors);
  });
  const auto end = std::min<std::size_t>(set_.size(), parts_.registers.max_cxt() + std::size_t{1});
  out.list(
      {.name = "contexts",
       .end = end,
       .count = std::nullopt,
       .look_work = kWalkWork,
       .there = runs},
      [&](std::uint64_t place) { return look_at(static_cast<ContextNumber>(place), out); },
      [this](const Seen& seen, util::InspectNode& list) { inspect_one(seen, list); });
}

void Contexts::inspect_entry(const ContextEntry& entry, util::InspectNode& out) const {
  const auto state = parts_.tables.state_of(entry);
  if (state) {
    out.add("state", to_string(*state));
  } else if (pcie::LocalMemoryOnly::take_refusal()) {
    out.add("state", kNotMapped);
  } else {
    inspect_refusal(state.error(), out);
  }
  if (entry.pasid) out.add_hex("cxt_pasid", *entry.pasid);
  out.add_hex("opb_000_enb", entry.opb_000_enb);
  out.add("max_buffer", entry.max_buffer);
  const auto space = parts_.memory.select(entry.pasid);
  inspect_ring(entry, space, out);
  inspect_first_keys<spec::akey_ent>(parts_.memory.select(parts_.registers.fn_pasid()),
                                     entry.akey_ptr, spec::key_entries(entry.akey_sz), "akey", out);
}

}  // namespace softhca::sdxi
