// Address handles (kernel interface 4.10).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

class AddressHandleCommands {
 public:
  explicit AddressHandleCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<AddressHandleCommands>> methods();
  static std::span<const WriteCommand<AddressHandleCommands>> write_commands();

 private:
  Errno create_ah(Request& request);
  Errno destroy_ah(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
