// The request "inspect [--json] [--from NUMBER] [--count NUMBER] [FUNCTION]" of the control socket.
#pragma once

#include <string>
#include <string_view>

#include "util/inspection.h"
#include "util/result.h"

namespace softhca::control {

/// The name under which the server's loop appears beside the functions.
inline constexpr std::string_view kLoop = "loop";

struct InspectRequest {
  std::string function;  ///< empty: all
  util::Inspection::Options show;
};

/// Parses the words after "inspect". The error says what is wrong.
util::Result<InspectRequest> parse_inspect(std::string_view words);

/// The whole request line.
std::string to_line(const InspectRequest& request);

}  // namespace softhca::control
