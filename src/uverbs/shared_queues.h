// SRQs in the program's memory (kernel interface 4.9).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/objects.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of SRQs.
class SharedQueueCommands {
 public:
  explicit SharedQueueCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<SharedQueueCommands>> methods();
  static std::span<const WriteCommand<SharedQueueCommands>> write_commands();

 private:
  Errno create_srq(Request& request);
  Errno find_objects(const Request& request, SharedReceiveQueue& srq);
  Errno destroy_srq(Request& request);
  Errno modify_srq(Request& request);
  Errno query_srq(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
