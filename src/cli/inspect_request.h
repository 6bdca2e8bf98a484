// The request "inspect [--json] [--from NUMBER] [--count NUMBER] [FUNCTION]" of the control socket.
#pragma once

#include <string>
#include <string_view>

#include "util/inspection.h"
#include "util/result.h"

namespace softhca::cli {

/// What the loop of the server is called beside the functions.
inline constexpr std::string_view kLoop = "loop";

struct InspectRequest {
  std::string function;  ///< empty: all
  util::Inspection::Options show;
};

/// What stands after "inspect". Fails with what is wrong with it.
util::Result<InspectRequest> parse_inspect(std::string_view words);

/// The whole line.
std::string to_line(const InspectRequest& request);

}  // namespace softhca::cli
