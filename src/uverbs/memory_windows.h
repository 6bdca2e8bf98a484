// Memory windows (kernel interface 4.11).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

class MemoryWindowCommands {
 public:
  explicit MemoryWindowCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<MemoryWindowCommands>> methods();
  static std::span<const WriteCommand<MemoryWindowCommands>> write_commands();

 private:
  Errno alloc_mw(Request& request);
  Errno destroy_mw(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
