// Receive WQs, and RWQ indirection tables over them (kernel interface 4.12).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of receive WQs and of their tables.
class ReceiveQueueCommands {
 public:
  explicit ReceiveQueueCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<ReceiveQueueCommands>> methods();
  static std::span<const WriteCommand<ReceiveQueueCommands>> write_commands();

 private:
  Errno create_wq(Request& request);
  Errno destroy_wq(Request& request);
  Errno modify_wq(Request& request);
  Errno create_table(Request& request);
  Errno destroy_table(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
