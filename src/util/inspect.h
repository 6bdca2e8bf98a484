// What a running part looks like, for people: a tree of named values that every device can fill,
// printed as indented text or as JSON. A device is a large tree, which is made and printed in
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

/// Prints a tree while it is made: lines of "name: value", two columns deeper for each level, or a
/// JSON object, indented the same.
class InspectWriter {
 public:
  explicit InspectWriter(bool json) : json_(json) {}

  /// A part, which has what comes until its end(). Elements of a `list` have no names in JSON.
  void begin(std::string_view name, bool list);
  void end();
  // Values.
  void number(std::string_view name, std::uint64_t value);
  /// In JSON a string.
  void hex(std::string_view name, std::uint64_t value);
  void flag(std::string_view name, bool value);
  void text(std::string_view name, std::string_view value);

  std::size_t depth() const { return open_.size(); }
  /// Bytes until now.
  std::size_t size() const { return out_.size(); }
  /// All of it. @pre depth() is 0
  std::string take() { return std::move(out_); }

  /// A place to go back to, as long as the part in which it was taken is the innermost.
  struct Mark {
    std::size_t size;
    bool empty;
  };
  Mark mark() const { return {out_.size(), open_.back().empty}; }
  /// Forgets what came since. @pre depth() is that of the mark
  void go_back(Mark mark);

 private:
  struct Open {
    bool list;
    bool empty;
  };

  /// Whatever stands before the next thing in a part.
  void next(std::string_view name);
  void indent(std::size_t levels) { out_.append(2 * levels, ' '); }
  /// A value as it stands in the text or in JSON.
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
  /// Addresses, masks, codes: what people read in hex.
  void add_hex(std::string_view name, std::uint64_t value) { leaf(name, Hex{value}); }

  /// A part with values of its own; good as long as this node.
  InspectNode& child(std::string_view name) { return node(name, Group::kFields); }
  /// A row of parts of one kind: in JSON an array, whose elements have no names.
  InspectNode& list(std::string_view name) { return node(name, Group::kElements); }

  const std::string& name() const { return name_; }

  /// Lines of "name: value", two columns deeper for each level.
  std::string to_text() const { return print(false); }
  /// The node's children as a JSON object, indented. Hexadecimal values are strings.
  std::string to_json() const { return print(true); }

  void write(InspectWriter& out) const;
  /// What is in it, without itself.
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
