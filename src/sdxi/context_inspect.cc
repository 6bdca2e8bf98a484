// Contexts::inspect: what a context's structures say, and how far we are with it.
#include <fmt/format.h>

#include "sdxi/contexts.h"
#include "sdxi/key_inspect.h"

namespace softhca::sdxi {
namespace {

/// Contexts whose tables are walked. Each costs a few reads of the host's memory.
constexpr std::size_t kWalked = 1024;

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
  if (!read || !write || *read == *write) return;
  std::array<std::byte, spec::kDescriptorSize> bytes{};
  if (!space.load_words(entry.descriptor(*read), bytes)) return;
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
  work.add("queued", context.queued);
  work.add("waits_for_valid", context.waits_for_valid);
  work.add("waits_for_others", context.waits_for_others);
  work.add("stopping", context.stopping);
  if (context.hang != 0) work.add("stop_hangs_by_fault", context.hang);
  inspect_execution(context.execution, work);
}

}  // namespace

void Contexts::inspect(util::InspectNode& out) const {
  const pcie::Paused workers_wait(&parts_.workers.gate());
  auto& totals = out.child("totals");
  totals.add("descriptors", statistics().descriptors);
  totals.add("errors", statistics().errors);
  auto& list = out.list("contexts");
  const std::size_t end =
      std::min<std::size_t>(set_.size(), parts_.registers.max_cxt() + std::size_t{1});
  for (std::size_t i = 0; i < end; ++i) {
    const auto number = static_cast<ContextNumber>(i);
    const auto* held = set_.find_active(number);
    if (held == nullptr && i >= kWalked) continue;
    const auto walked = parts_.tables.walk(number);
    if (!walked && !walked.error().log_err && held == nullptr) continue;
    auto& one = list.child(fmt::format("context {}", number));
    one.add("number", number);
    if (walked) {
      inspect_entry(*walked, one);
    } else if (walked.error().log_err) {
      inspect_refusal(*walked.error().log_err, one);
    } else {
      one.add("invalid", "the tables do not lead to it any more");
    }
    if (held != nullptr) inspect_held(*held, doorbells_.value(number), one);
  }
  if (end > kWalked) out.add("contexts_shown_only_if_at_work_from", kWalked);
}

void Contexts::inspect_entry(const ContextEntry& entry, util::InspectNode& out) const {
  const auto state = parts_.tables.state_of(entry);
  if (state) {
    out.add("state", to_string(*state));
  } else {
    inspect_refusal(state.error(), out);
  }
  if (entry.pasid) out.add_hex("cxt_pasid", *entry.pasid);
  out.add_hex("opb_000_enb", entry.opb_000_enb);
  out.add("max_buffer", entry.max_buffer);
  const auto space = parts_.memory.select(entry.pasid);
  inspect_ring(entry, space, out);
  inspect_keys<spec::akey_ent>(parts_.memory.select(parts_.registers.fn_pasid()), entry.akey_ptr,
                               spec::key_entries(entry.akey_sz), "akey", out);
}

}  // namespace softhca::sdxi
