// Aliases of the document's structures for this folder.
#pragma once

#include "spec/sdxi/address.h"
#include "spec/sdxi/context.h"
#include "spec/sdxi/descriptor.h"
#include "spec/sdxi/error_log.h"
#include "spec/sdxi/keys.h"
#include "spec/sdxi/mmio.h"

namespace softhca::sdxi {

namespace spec = ::softhca::spec::sdxi;

/// 16 bits: 9 bits of level 2 index, 7 bits of level 1 index (SDXI 3.2).
using ContextNumber = std::uint16_t;

}  // namespace softhca::sdxi
