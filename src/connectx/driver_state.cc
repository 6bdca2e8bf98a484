#include "connectx/driver_state.h"

#include <utility>

#include "connectx/base/resources.h"
#include "connectx/function/capabilities.h"
#include "connectx/function/pages.h"

namespace softhca::connectx {

namespace {

/// Cost of destroying the rest after Objects::dismantle().
constexpr std::int64_t kLastRemainsWork = 20'000;

}  // namespace

DriverState::DriverState(const Parts& parts, const Limits& limits, MakeObjects make_objects)
    : parts_(parts),
      make_objects_(std::move(make_objects)),
      capabilities_(std::make_unique<Capabilities>(limits, parts.model)) {}

DriverState::~DriverState() = default;

const Limits& DriverState::limits() const { return capabilities_->limits(); }

QueueMapper DriverState::queue_mapper() {
  return {parts_.dma, resources().translations(), user_memories(), parts_.work};
}

WorkQueueMaker DriverState::work_queue_maker() { return {queue_mapper(), resources(), limits()}; }

void DriverState::drop_objects() {
  // If there are already dropped objects, no command was executed since: objects_ are unused.
  if (remains_ == nullptr) remains_ = std::move(objects_);
  objects_.reset();
  objects_ = make_objects_(limits());
  pages_->stop_requests();
}

void DriverState::forget() {
  // Reset capabilities first: the new objects need the full limits of the device.
  capabilities_->reset();
  drop_objects();
  pages_->forget_all();
  state_ = HcaState::kDisabled;
  issi_ = 0;
  parts_.health.clear();
}

void DriverState::reset() {
  capabilities_->reset();
  parts_.health.clear();
  pages_ = std::make_unique<PageManager>();
  drop_objects();
  state_ = HcaState::kDisabled;
  issi_ = 0;
}

bool DriverState::clear_remains() {
  if (remains_ == nullptr) return true;
  if (!remains_->dismantle(parts_.work)) return false;
  parts_.work.charge(kLastRemainsWork);
  remains_.reset();
  return true;
}

}  // namespace softhca::connectx
