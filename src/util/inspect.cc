#include "util/inspect.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace softhca::util {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

}  // namespace

void InspectNode::write_text(std::string& out, unsigned depth) const {
  const auto value =
      std::visit(Overloaded{[this](Group) { return std::string(children_.empty() ? " -" : ""); },
                            [](std::uint64_t v) { return fmt::format(" {}", v); },
                            [](Hex v) { return fmt::format(" {:#x}", v.value); },
                            [](bool v) { return std::string(v ? " yes" : " no"); },
                            [](const std::string& v) { return " " + v; }},
                 value_);
  out += fmt::format("{:{}}{}:{}\n", "", depth * 2, name_, value);
  for (const auto& child : children_) child.write_text(out, depth + 1);
}

std::string InspectNode::to_text() const {
  std::string out;
  write_text(out, 0);
  return out;
}

template <class Json>
Json InspectNode::json() const {
  return std::visit(Overloaded{[this](Group group) {
                                 auto out =
                                     group == Group::kElements ? Json::array() : Json::object();
                                 for (const auto& child : children_) {
                                   if (group == Group::kElements) {
                                     out.push_back(child.json<Json>());
                                   } else {
                                     out[child.name_] = child.json<Json>();
                                   }
                                 }
                                 return out;
                               },
                               [](Hex v) { return Json(fmt::format("{:#x}", v.value)); },
                               [](const auto& v) { return Json(v); }},
                    value_);
}

std::string InspectNode::to_json() const {
  // A name from the command line need not be UTF-8.
  return json<nlohmann::ordered_json>().dump(2, ' ', false,
                                             nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace softhca::util
