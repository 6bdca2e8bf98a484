// Events of identifiers on their channels.
#pragma once

#include <cstdint>

#include "rdma_cm/channel.h"
#include "rdma_cm/identifier.h"

namespace softhca::rdma_cm {

/// `status`: 0, a negative errno, or a code of the peer's message.
Event event_of(const Identifier& id, EventType type, std::int32_t status = 0);
/// Queues an event of the identifier on its channel.
void report(const Identifier& id, const Event& event);
void report(const Identifier& id, EventType type, std::int32_t status = 0);

}  // namespace softhca::rdma_cm
