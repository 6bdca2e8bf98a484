// CQs in the program's memory (kernel interface 4.6).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of CQs.
class CompletionQueueCommands {
 public:
  /// `made`: called for each new CQ with its user handle; may be empty.
  CompletionQueueCommands(const OpenFile& file, const std::function<void(std::uint64_t)>& made)
      : file_(file), made_(made) {}

  static std::span<const Method<CompletionQueueCommands>> methods();
  static std::span<const WriteCommand<CompletionQueueCommands>> write_commands();

 private:
  Errno create_cq(Request& request);
  Errno destroy_cq(Request& request);
  Errno resize_cq(Request& request);
  Errno modify_cq(Request& request);

  const OpenFile& file_;
  const std::function<void(std::uint64_t)>& made_;
};

}  // namespace softhca::uverbs
