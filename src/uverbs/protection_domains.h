// Protection domains.
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

class ProtectionDomainCommands {
 public:
  explicit ProtectionDomainCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<ProtectionDomainCommands>> methods();
  static std::span<const WriteCommand<ProtectionDomainCommands>> write_commands();

 private:
  Errno alloc_pd(Request& request);
  Errno query_pd(Request& request);
  Errno destroy_pd(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
