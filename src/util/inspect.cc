#include "util/inspect.h"

#include <fmt/format.h>

#include <cassert>
#include <iterator>

#include "util/json_quote.h"

namespace softhca::util {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

}  // namespace

// InspectWriter --------------------------------------------------------------------------------

void InspectWriter::next(std::string_view name) {
  if (!open_.empty()) {
    auto& part = open_.back();
    if (json_) {
      out_ += part.empty ? "\n" : ",\n";
    } else if (part.empty) {
      out_ += '\n';
    }
    part.empty = false;
    indent(open_.size());
  }
  if (!json_) {
    out_ += name;
    out_ += ':';
  } else if (!open_.empty() && !open_.back().list) {
    out_ += json_quote(name);
    out_ += ": ";
  }
}

void InspectWriter::begin(std::string_view name, bool list) {
  next(name);
  if (json_) out_ += list ? '[' : '{';
  open_.push_back({.list = list, .empty = true});
}

void InspectWriter::end() {
  const auto part = open_.back();
  open_.pop_back();
  if (json_) {
    if (!part.empty) {
      out_ += '\n';
      indent(open_.size());
    }
    out_ += part.list ? ']' : '}';
    if (open_.empty()) out_ += '\n';
  } else if (part.empty) {
    out_ += " -\n";
  }
}

void InspectWriter::leaf(std::string_view name, std::string_view value) {
  next(name);
  if (!json_) out_ += ' ';
  out_ += value;
  if (!json_) out_ += '\n';
}

void InspectWriter::number(std::string_view name, std::uint64_t value) {
  leaf(name, fmt::format_int(value).c_str());
}

void InspectWriter::hex(std::string_view name, std::uint64_t value) {
  const auto quote = json_ ? "\"" : "";
  leaf(name, fmt::format("{0}{1:#x}{0}", quote, value));
}

void InspectWriter::flag(std::string_view name, bool value) {
  leaf(name, json_ ? (value ? "true" : "false") : (value ? "yes" : "no"));
}

void InspectWriter::text(std::string_view name, std::string_view value) {
  leaf(name, json_ ? std::string_view(json_quote(value)) : value);
}

void InspectWriter::go_back(Mark mark) {
  assert(mark.size <= out_.size());
  out_.resize(mark.size);
  open_.back().empty = mark.empty;
}

// InspectNode ----------------------------------------------------------------------------------

void InspectNode::write(InspectWriter& out) const {
  std::visit(
      Overloaded{[&](Group group) {
                   out.begin(name_, group == Group::kElements);
                   write_children(out);
                   out.end();
                 },
                 [&](std::uint64_t v) { out.number(name_, v); },
                 [&](Hex v) { out.hex(name_, v.value); }, [&](bool v) { out.flag(name_, v); },
                 [&](const std::string& v) { out.text(name_, v); }},
      value_);
}

std::string InspectNode::print(bool json) const {
  InspectWriter out(json);
  write(out);
  return out.take();
}

}  // namespace softhca::util
