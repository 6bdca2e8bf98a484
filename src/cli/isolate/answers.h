// Answers of processes, put together to one. Whatever a process has sent, it speaks for itself
// only.
#pragma once

#include <string>
#include <string_view>

namespace softhca::cli {

inline constexpr std::string_view kOk = "ok\n";

/// The answer to "inspect WHAT" as a part called `name` of a longer text, `depth` levels down:
/// lines without control characters, all of them deeper than the name. An error stands there, too.
std::string as_text(std::string_view name, std::string_view what, std::string_view answer,
                    unsigned depth);

/// The answer to "inspect --json WHAT" as a member of a JSON object. An error, or what is no
/// object, is an object with a member "error".
std::string as_member(std::string_view name, std::string_view answer);

}  // namespace softhca::cli
