#include "util/json_quote.h"

#include <nlohmann/json.hpp>

namespace softhca::util {

std::string json_quote(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace softhca::util
