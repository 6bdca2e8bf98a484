// The network rules of a run (`softhca run --fault`), in a directory of their own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fabric/shared_faults.h"
#include "run/run_directory.h"
#include "util/result.h"

namespace softhca::run {

class RunFaults {
 public:
  /// Makes the file of the rules, with these. The error names the wrong one. `ports`: the names of
  /// the run's devices.
  static util::Result<RunFaults> create(const std::vector<std::string>& rules,
                                        std::vector<std::string> ports);

  fabric::FaultBook& book() { return book_; }
  /// The variable by which programs find it, "NAME=value".
  std::string variable() const { return "SOFTHCA_FAULTS=" + book_.path(); }

 private:
  RunFaults(RunDirectory directory, fabric::FaultBook book)
      : directory_(std::move(directory)), book_(std::move(book)) {}

  RunDirectory directory_;
  fabric::FaultBook book_;
};

}  // namespace softhca::run
