// The port and its GIDs (kernel interface 4.3, 4.4).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Queries of the port.
class PortCommands {
 public:
  explicit PortCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<PortCommands>> methods();

 private:
  Errno query_port(Request& request);
  Errno query_device_port(Request& request);
  Errno query_gid_table(Request& request);
  Errno query_gid_entry(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
