// Text as a JSON string (RFC 8259).
#pragma once

#include <string>
#include <string_view>

namespace softhca::util {

/// The text in quotes. It may be any bytes: what is not UTF-8 is replaced.
std::string json_quote(std::string_view text);

}  // namespace softhca::util
