// What a running part looks like, for people: a tree of named values that every device can fill,
// printed as indented text or as JSON.
#pragma once

#include <concepts>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <variant>

namespace softhca::util {

class InspectNode {
 public:
  explicit InspectNode(std::string name) : name_(std::move(name)) {}

  // Values.
  template <std::unsigned_integral T>
  void add(std::string_view name, T value) {
    if constexpr (std::same_as<T, bool>) {
      leaf(name, value);
    } else {
      leaf(name, std::uint64_t{value});
    }
  }
  void add(std::string_view name, std::string_view value) { leaf(name, std::string(value)); }
  void add(std::string_view name, const char* value) { leaf(name, std::string(value)); }
  /// Addresses, masks, codes: what people read in hex.
  void add_hex(std::string_view name, std::uint64_t value) { leaf(name, Hex{value}); }

  /// A part with values of its own; good as long as this node.
  InspectNode& child(std::string_view name) { return node(name, Group::kFields); }
  /// A row of parts of one kind: in JSON an array, whose elements have no names.
  InspectNode& list(std::string_view name) { return node(name, Group::kElements); }

  const std::string& name() const { return name_; }

  /// Lines of "name: value", two columns deeper for each level.
  std::string to_text() const;
  /// The node's children as a JSON object, indented. Hexadecimal values are strings.
  std::string to_json() const;

 private:
  struct Hex {
    std::uint64_t value;
  };
  enum class Group : std::uint8_t { kFields, kElements };
  using Value = std::variant<Group, std::uint64_t, Hex, bool, std::string>;

  InspectNode(std::string_view name, Value value) : name_(name), value_(std::move(value)) {}

  void leaf(std::string_view name, Value value) { children_.push_back({name, std::move(value)}); }
  InspectNode& node(std::string_view name, Group group) {
    children_.push_back({name, group});
    return children_.back();
  }
  void write_text(std::string& out, unsigned depth) const;
  template <class Json>
  Json json() const;

  std::string name_;
  Value value_ = Group::kFields;
  std::list<InspectNode> children_;
};

}  // namespace softhca::util
