// XRC domains, and targets that another context has made.
#pragma once

#include <functional>
#include <span>

#include "os/unique_fd.h"
#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of XRC domains, and ibv_open_qp.
class XrcCommands {
 public:
  /// `copy`: a copy of one of the program's descriptors; invalid if there is no such descriptor.
  XrcCommands(const OpenFile& file, const std::function<os::UniqueFd(int)>& copy)
      : file_(file), copy_(copy) {}

  static std::span<const Method<XrcCommands>> methods();
  static std::span<const WriteCommand<XrcCommands>> write_commands();

 private:
  Errno open_xrcd(Request& request);
  Errno open_qp(Request& request);
  Errno destroy_xrcd(Request& request);

  const OpenFile& file_;
  const std::function<os::UniqueFd(int)>& copy_;
};

}  // namespace softhca::uverbs
