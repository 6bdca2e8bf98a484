// Flow counters of verbs (ibv_create_counters): one device counter of packets and bytes, and the
// indexes at which the program reads them.
#pragma once

#include <cstdint>
#include <span>

#include "uverbs/method.h"
#include "uverbs/objects.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

class CounterCommands {
 public:
  explicit CounterCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<CounterCommands>> methods();

 private:
  Errno create_counters(Request& request);
  Errno read_counters(Request& request);
  Errno destroy_counters(Request& request);

  const OpenFile& file_;
};

/// Makes `flow` count by the counters of that handle. `request`: creates the flow, and may describe
/// the counters.
Errno count_by(const OpenFile& file, const Request& request, std::uint32_t handle, Flow& flow,
               FlowRule& rule);

}  // namespace softhca::uverbs
