// The options --control and --fault of a run or of an environment, and the socket and rules that
// they make.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/run_control.h"
#include "run/run_faults.h"
#include "util/result.h"

namespace CLI {
class App;
}

namespace softhca::run {

struct ControlOptions {
  std::string socket = {};               ///< path of a control socket; empty: none
  std::vector<std::string> faults = {};  ///< network rules, or @FILE
};

/// Declares the options. `whose`: what the processes belong to, for the help.
void add_control_options(CLI::App& command, ControlOptions& options, const std::string& whose);

/// The rules and the control socket that the options ask for.
class Controls {
 public:
  /// Makes them, and returns the variables by which programs find them, "NAME=value" each. `rules`:
  /// those of the options, read (read_rules()). `fabric`: the directory of the network. `ports`:
  /// the names of the devices.
  util::Result<std::vector<std::string>> create(const ControlOptions& options,
                                                const std::vector<std::string>& rules,
                                                const std::string& fabric,
                                                std::vector<std::string> ports);
  /// Removes them, as the destructor does.
  void close() {
    control_.reset();
    faults_.reset();
  }

 private:
  std::optional<RunFaults> faults_;      ///< none: no --fault, and no --control to add one
  std::unique_ptr<RunControl> control_;  ///< null: no --control
};

}  // namespace softhca::run
