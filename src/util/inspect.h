// The state of a running part, for users: a tree of named values that every device can fill,
// printed as indented text or as JSON. A device is a large tree, which is built and printed in
// pieces: see inspection.h.
#pragma once

#include <concepts>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace softhca::util {

/// Prints a tree while it is built: lines of "name: value", indented by two columns per level, or a
/// JSON object with the same indentation.
class InspectWriter {
 public:
  explicit InspectWriter(bool json) : json_(json) {}

  /// Begins a part, which contains everything until its end(). Elements of a `list` have no names
  /// in JSON.
  void begin(std::string_view name, bool list);
  void end();
  // Values.
  void number(std::string_view name, std::uint64_t value);
  /// A string in JSON.
  void hex(std::string_view name, std::uint64_t value);
  void flag(std::string_view name, bool value);
  void text(std::string_view name, std::string_view value);

  std::size_t depth() const { return open_.size(); }
  /// Bytes written so far.
  std::size_t size() const { return out_.size(); }
  /// Returns the whole text. @pre depth() is 0
  std::string take() { return std::move(out_); }

  /// A position to go back to, while the part in which it was taken is the innermost.
  struct Mark {
    std::size_t size;
    bool empty;
  };
  Mark mark() const { return {out_.size(), open_.back().empty}; }
  /// Removes what was written after the mark. @pre depth() is that of the mark
  void go_back(Mark mark);

 private:
  struct Open {
    bool list;
    bool empty;
  };

  /// Writes what precedes the next item of a part.
  void next(std::string_view name);
  void indent(std::size_t levels) { out_.append(2 * levels, ' '); }
  /// Writes a value in its text or JSON form.
  void leaf(std::string_view name, std::string_view value);

  bool json_;
  std::string out_;
  std::vector<Open> open_;
};

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
  /// For addresses, masks and codes, which users read in hex.
  void add_hex(std::string_view name, std::uint64_t value) { leaf(name, Hex{value}); }

  /// Adds a part with its own values; valid as long as this node.
  InspectNode& child(std::string_view name) { return node(name, Group::kFields); }
  /// Adds a list of parts of one kind: in JSON an array, whose elements have no names.
  InspectNode& list(std::string_view name) { return node(name, Group::kElements); }

  const std::string& name() const { return name_; }

  /// Lines of "name: value", indented by two columns per level.
  std::string to_text() const { return print(false); }
  /// The node's children as a JSON object, indented. Hexadecimal values are strings.
  std::string to_json() const { return print(true); }

  void write(InspectWriter& out) const;
  /// Writes the children, without the node itself.
  void write_children(InspectWriter& out) const {
    for (const auto& child : children_) child.write(out);
  }

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
  std::string print(bool json) const;

  std::string name_;
  Value value_ = Group::kFields;
  std::list<InspectNode> children_;
};

}  // namespace softhca::util
