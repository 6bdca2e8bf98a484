// UMEM: program memory that DevX commands name by a number (kernel interface 4.13).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of UMEMs.
class DevxMemoryCommands {
 public:
  explicit DevxMemoryCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<DevxMemoryCommands>> methods();

 private:
  Errno reg_umem(Request& request);
  Errno dereg_umem(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
