// The form of device commands in this folder.
#pragma once

#include "driver/connectx/command_queue.h"
#include "util/log.h"
#include "util/result.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;

/// A command to the device. A Request is a call of the program.
template <class Layout>
using Command = driver::connectx::Request<Layout>;

/// Logs a failed destroy command in a destructor, which has no caller to return it to.
inline void report(const util::Result<void>& done) {
  if (!done) util::log(util::LogLevel::kWarning, "{}", done.error().message);
}

}  // namespace softhca::uverbs
