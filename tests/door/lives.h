// The cases of lives.cc: what happens to programs in the course of their lives. Each prints what it
// sees; lives.py knows what it must be.
#pragma once

#include <cstdio>
#include <cstdlib>
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

}  // namespace lives
