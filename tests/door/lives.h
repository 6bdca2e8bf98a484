// The cases of lives.cc: situations that long-running programs get into. Each case prints its
// observations; lives.py has the expected output.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "loop_qps.h"

namespace lives {

struct Case {
  const char* name;
  int (*run)();
};

std::span<const Case> ends();     ///< lives_ends.cc: how processes end
std::span<const Case> pages();    ///< lives_pages.cc: protections of memory that a device uses
std::span<const Case> signals();  ///< lives_signals.cc: handlers of the program
std::span<const Case> files();    ///< lives_files.cc: descriptors
std::span<const Case> held();     ///< lives_held.cc: threads stopped in the middle of a call
std::span<const Case> tree();     ///< lives_tree.cc: files of the tree

/// Prints whether a call has succeeded.
inline void tell(const char* what, long result) {
  std::printf("%s: %s\n", what, result >= 0 ? "ok" : std::strerror(errno));
}

/// An address that no process has.
inline ibv_ah_attr unknown_address() {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.sgid_index = kGidIndex;
  attributes.grh.dgid.raw[10] = attributes.grh.dgid.raw[11] = 0xff;
  const std::uint8_t unknown[] = {10, 99, 99, 99};
  std::memcpy(&attributes.grh.dgid.raw[12], unknown, 4);
  return attributes;
}

}  // namespace lives
