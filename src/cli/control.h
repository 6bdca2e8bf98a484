// What a running server answers on its control socket: what its functions look like, and fault
// rules that come and go.
//
//   inspect [--json] [FUNCTION]
//   fault add RULE | fault list | fault remove NUMBER | fault clear
//
// The answer's first line is "ok", or "error: " and what is wrong; the rest is for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pcie/function.h"
#include "sdxi/faults.h"
#include "util/result.h"
#include "vfio_user/serve_loop.h"

namespace softhca::cli {

/// What a server's commands act on; all of it outlives the server.
struct ControlTargets {
  std::vector<pcie::Function*> functions;
  sdxi::Faults* faults;
  const vfio_user::ServeLoop* loop = nullptr;  ///< null: not told about
};

/// A rule for one of the functions that there are. Fails if it is about none of them.
util::Result<sdxi::FaultRule> parse_fault_for(const ControlTargets& targets, std::string_view text);

std::string answer_control(const ControlTargets& targets, std::string_view request);

/// Asks the server at `path` and prints its answer, errors on stderr. The exit status.
int ask_and_print(const std::string& path, std::string_view request);

}  // namespace softhca::cli
