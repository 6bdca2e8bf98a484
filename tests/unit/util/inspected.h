// The output of `softhca inspect` for an object, in one piece or collected over several turns.
#pragma once

#include <string>
#include <string_view>

#include "util/inspection.h"

namespace softhca::test {

struct Inspected {
  std::string text;
  unsigned turns = 0;
  std::int64_t longest = 0;  ///< most work of a turn
};

/// `function` has inspect(Inspection&). Each turn may do `allowed` units of work.
template <class Function>
Inspected inspect_in_turns(const Function& function, const util::Inspection::Options& options,
                           std::int64_t allowed) {
  Inspected out;
  util::Inspection inspection(function.name(), options);
  for (bool done = false; !done; ++out.turns) {
    util::WorkBudget work(allowed);
    done = inspection.go_on(work, [&](util::Inspection& to) { function.inspect(to); });
    out.longest = std::max(out.longest, work.done());
  }
  out.text = inspection.finish();
  return out;
}

template <class Function>
std::string inspected(const Function& function, const util::Inspection::Options& options = {}) {
  return inspect_in_turns(function, options, 1 << 30).text;
}

}  // namespace softhca::test
