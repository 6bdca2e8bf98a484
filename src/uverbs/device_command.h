// Commands of the device, as the files of this folder write them.
#pragma once

#include "driver/connectx/command_queue.h"
#include "util/log.h"
#include "util/result.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;

/// Of the device; a Request is one of the program.
template <class Layout>
using Command = driver::connectx::Request<Layout>;

/// Of what is destroyed, when nobody is left to be told that the device does not let go of it.
inline void report(const util::Result<void>& done) {
  if (!done) util::log(util::LogLevel::kWarning, "{}", done.error().message);
}

}  // namespace softhca::uverbs
