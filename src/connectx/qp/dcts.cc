#include "connectx/qp/dcts.h"

#include <new>
#include <utility>

namespace softhca::connectx {

using spec::connectx::event_type;

namespace {

/// Cost of destroying a DCT (util::WorkBudget).
constexpr std::int64_t kDctDestroyWork = 600;

}  // namespace

Dcts::Dcts(const Dct::Parts& parts, Resources& resources, rdma::DcTargets& targets)
    : parts_(parts),
      resources_(resources),
      targets_(targets),
      dcts_(resources.queue_numbers(), kMaxDcts, resources.first_queue()) {}

Dct* Dcts::add(util::View<Dct::Context> context, Dct::Uses uses) {
  auto* dct = dcts_.emplace(context, std::move(uses), parts_);
  if (dct == nullptr) return nullptr;
  const CounterSetId counters(context.get(Dct::Context::counter_set_id));
  try {
    targets_.add(dct->dctn(),
                 {.key = context.get(Dct::Context::dc_access_key),
                  .connection = dct->attributes(),
                  .completion_data = parts_.completion_writer.data_of(context),
                  .counters = resources_.q_counter(counters)},
                 dct->queues());
  } catch (const std::bad_alloc&) {
    dcts_.erase(dct->dctn());  // a DCT in the table must have its part in the transport
    throw;
  }
  return dct;
}

bool Dcts::drain(Dct& dct, util::WorkBudget& work) {
  dct.state = Dct::State::DRAINING;
  if (!targets_.drain(dct.dctn(), work)) return false;
  dct.state = Dct::State::DRAINED;
  // Drivers wait for this event after each DRAIN_DCT.
  parts_.event_queues.post(event_type::DCT_DRAINED, 0, EventQueues::dct_data(dct.dctn()));
  return true;
}

void Dcts::remove(Dct& dct) {
  targets_.remove(dct.dctn());
  dcts_.erase(dct.dctn());
}

std::uint32_t Dcts::key_violations(const Dct& dct) const {
  return targets_.find(dct.dctn())->key_violations();
}

bool Dcts::dismantle(util::WorkBudget& work) {
  return dcts_.dismantle(work, [](const Dct&) { return kDctDestroyWork; });
}

}  // namespace softhca::connectx
