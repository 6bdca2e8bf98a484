// Memory regions (kernel interface 4.5). A key maps the program's own pages, so registering only
// has to make sure that they are present.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

class MemoryRegionCommands {
 public:
  explicit MemoryRegionCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<MemoryRegionCommands>> methods();
  static std::span<const WriteCommand<MemoryRegionCommands>> write_commands();

 private:
  Errno reg_mr(Request& request);
  Errno rereg_mr(Request& request);
  Errno query_mr(Request& request);
  Errno advise_mr(Request& request);
  Errno destroy_mr(Request& request);

  const OpenFile& file_;
};

/// The ib_access_flags of the region with this handle; nothing if there is none.
std::optional<std::uint32_t> region_access(const Objects& objects, std::uint32_t handle);

}  // namespace softhca::uverbs
