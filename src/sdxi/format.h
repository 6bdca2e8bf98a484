// The document's structures, under a short name for this folder.
#pragma once

#include "spec/sdxi/address.h"
#include "spec/sdxi/context.h"
#include "spec/sdxi/descriptor.h"
#include "spec/sdxi/error_log.h"
#include "spec/sdxi/keys.h"
#include "spec/sdxi/mmio.h"

namespace softhca::sdxi {

namespace spec = ::softhca::spec::sdxi;

/// SDXI 3.2: 9 bits of level 2 index, 7 bits of level 1 index.
using ContextNumber = std::uint16_t;

}  // namespace softhca::sdxi
