// Flows steer frames to raw packet QPs (kernel interface 4.12): those of ibv_create_flow, and
// those in the device's own format (mlx5dv_create_flow).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/objects.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of flows and of their matchers.
class FlowCommands {
 public:
  explicit FlowCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<FlowCommands>> methods();
  static std::span<const WriteCommand<FlowCommands>> write_commands();

 private:
  Errno create_flow(Request& request);
  Errno create_matcher(Request& request);
  Errno create_matched_flow(Request& request);
  Errno no_frame_changes(Request& request);
  Errno destroy_flow(Request& request);
  Errno destroy_matcher(Request& request);
  Errno find_destination(const Request& request, Flow& flow, FlowRule& rule) const;
  Errno find_devx_counter(const Request& request, Flow& flow, FlowRule& rule) const;

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
