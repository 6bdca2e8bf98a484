// Commands of QPs (kernel interface 4.7, 4.8).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

class QueuePairCommands {
 public:
  explicit QueuePairCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<QueuePairCommands>> methods();
  static std::span<const WriteCommand<QueuePairCommands>> write_commands();

 private:
  Errno create_qp(Request& request);
  Errno destroy_qp(Request& request);
  Errno modify_qp(Request& request);
  Errno modify_qp_extended(Request& request);
  Errno query_qp(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
