// The card of the ConnectX fuzzers. With SOFTHCA_FUZZ_RSNIC it is an RSNIC with the document's own
// layouts, and all its actions are traced.
#pragma once

#include "connectx/fake_host.h"

#ifdef SOFTHCA_FUZZ_RSNIC

#include <cstdio>

#include "rsnic/options.h"
#include "util/trace.h"

namespace softhca::fuzz {

/// A trace that is written nowhere.
inline util::Trace& trace() {
  static util::TraceWriter writer(std::fopen("/dev/null", "w"), util::TraceWriter::Format::kJson,
                                  util::monotonic_now);
  static util::Trace trace(writer, "rsnic");
  return trace;
}

inline connectx::HostOptions card(connectx::HostOptions options) {
  const auto rsnic = rsnic::device_options(rsnic::Profile::kDocument);
  options.model = rsnic.model;
  options.limits = rsnic.limits;
  options.trace = &trace();
  return options;
}
inline constexpr bool kMultiPacketSends = true;

}  // namespace softhca::fuzz

#else

namespace softhca::fuzz {

inline connectx::HostOptions card(const connectx::HostOptions& options) { return options; }
inline constexpr bool kMultiPacketSends = false;

}  // namespace softhca::fuzz

#endif
