// Translates events of the device into those of the verbs.
#pragma once

#include "driver/connectx/event_queue.h"
#include "driver/verbs/types.h"

namespace softhca::driver::connectx {

verbs::AsyncEvent translate_event(const Event& event);

}  // namespace softhca::driver::connectx
