// Includes all of the verbs.
#pragma once

#include "driver/verbs/connection.h"  // IWYU pragma: export
#include "driver/verbs/device.h"      // IWYU pragma: export
#include "driver/verbs/queue_pair.h"  // IWYU pragma: export
