// The form of device commands in this folder.
#pragma once

#include <cstdint>

#include "driver/connectx/command_queue.h"
#include "util/log.h"
#include "util/result.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;

/// A command to the device. A Request is a call of the program.
template <class Layout>
using Command = driver::connectx::Request<Layout>;

/// The bit of a mask at a position that a format names.
constexpr std::uint32_t bit(auto position) { return 1u << static_cast<unsigned>(position); }

/// Logs a failed destroy command in a destructor, which has no caller to return it to.
inline void report(const util::Result<void>& done) {
  if (!done) util::log(util::LogLevel::kWarning, "{}", done.error().message);
}

}  // namespace softhca::uverbs
