#include "rdma_cm/events.h"

namespace softhca::rdma_cm {

Event event_of(const Identifier& id, EventType type, std::int32_t status) {
  Event event;
  event.counted_for = id.number;
  event.content.uid = id.uid;
  event.content.id = id.number;
  event.content.event = static_cast<std::uint32_t>(type);
  event.content.status = static_cast<std::uint32_t>(status);
  return event;
}

void report(const Identifier& id, const Event& event) {
  // Until the program has accepted the request, it does not know the identifier.
  if (id.uid != 0) id.channel->push(event);
}

void report(const Identifier& id, EventType type, std::int32_t status) {
  report(id, event_of(id, type, status));
}

}  // namespace softhca::rdma_cm
