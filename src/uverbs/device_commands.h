// The device as a whole (kernel interface 4.1, 4.2).
#pragma once

#include <rdma/mlx5-abi.h>

#include <span>

#include "uverbs/context_options.h"
#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Opens the context, and describes it, its objects and the device (device_attributes.cc).
class DeviceCommands {
 public:
  DeviceCommands(const OpenFile& file, const ContextOptions& options)
      : file_(file), options_(options) {}

  static std::span<const Method<DeviceCommands>> methods();
  static std::span<const WriteCommand<DeviceCommands>> write_commands();

 private:
  Errno get_context(Request& request);
  Errno query_context(Request& request);
  Errno info_handles(Request& request);
  Errno query_device(Request& request);
  Errno query_device_extended(Request& request);
  mlx5_ib_alloc_ucontext_resp describe_context();

  const OpenFile& file_;
  const ContextOptions& options_;
};

}  // namespace softhca::uverbs
