// Requests of the control socket are lines of words.
#pragma once

#include <algorithm>
#include <string_view>

namespace softhca::control {

/// Takes the next word off `text`; empty at the end.
inline std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace softhca::control
