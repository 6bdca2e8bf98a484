// An inspect tree that is built in pieces, so that inspecting a device with hundreds of thousands
// of objects delays nothing else. Each turn does some of it. There is a limit of objects per kind,
// and one for the whole answer.
//
// The inspected function is called in every turn. It makes the same calls in the same order, and
// keeps no state: the Inspection knows which calls are done, and skips them. So no reference to an
// object is kept from one turn to the next, in which the object may be destroyed.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "util/inspect.h"
#include "util/work_budget.h"

namespace softhca::util {

/// One kind of object. The objects are at positions [begin, end); a position may be empty.
struct InspectList {
  std::string_view name;
  std::uint64_t end;
  /// How many there are; nothing: unknown, so that all positions are searched.
  std::optional<std::uint64_t> count;
  unsigned shift = 0;  ///< an object's number is its position shifted left by this many bits
  std::int64_t look_work = 5;  ///< cost of searching one position (util::WorkBudget)
  bool there = true;           ///< false: the list is omitted
  std::uint64_t begin = 0;     ///< positions below are not searched
};

class Inspection {
 public:
  /// Default number of objects shown per kind.
  static constexpr std::uint32_t kCount = 16;
  static constexpr std::uint32_t kCountMax = 256;
  static constexpr std::size_t kBytesMax = 4 << 20;

  struct Options {
    bool json = false;
    std::uint64_t from = 0;         ///< of each kind, show objects with this number or a higher one
    std::uint32_t count = kCount;   ///< at most this many per kind
    std::size_t bytes = kBytesMax;  ///< limit of the answer, except for a closing line or two
  };

  Inspection(std::string_view name, const Options& options);

  // For the caller that builds the answer --------------------------------------------------------

  /// Calls `all` for as much as fits into `work`. True if nothing is left to do.
  template <class All>
  bool go_on(WorkBudget& work, All&& all) {
    work_ = &work;
    at_ = 0;
    paused_ = false;
    all(*this);
    return !paused_ || cut_;
  }
  /// Ends the inspection early; the answer gives `reason`.
  void cut(std::string_view reason);
  /// Returns the answer, which is well-formed wherever it stopped. Ends the inspection.
  std::string finish();

  // For the inspected function ------------------------------------------------------------------

  /// Values: `fill` gets a node, whose children are added here.
  template <class Fill>
  void values(Fill&& fill) {
    if (!due()) return;
    InspectNode node("");
    fill(node);
    if (add(node)) did();
  }
  /// The same in a part with a name.
  template <class Fill>
  void part(std::string_view name, Fill&& fill) {
    values([&](InspectNode& node) { fill(node.child(name)); });
  }
  /// A part that contains the parts that `body` adds.
  template <class Body>
  void group(std::string_view name, Body&& body) {
    if (due()) {
      out_.begin(name, false);
      did();
    }
    if (paused_) return;
    body();
    if (due()) {
      out_.end();
      did();
    }
  }

  /// Objects of one kind: `find(place)` returns a pointer or an optional, and `show(object, node)`
  /// adds the object to the node. Behind them follow their number, and how to show the omitted
  /// ones.
  template <class Find, class Show>
  void list(const InspectList& list, Find&& find, Show&& show) {
    if (!due() || !begin(list)) return;
    while (!scan_ends(list)) {
      if (pause()) return;
      const auto place = scan_.place++;
      work_->charge(list.look_work);
      if (auto found = find(place); found && counts(list, place)) {
        InspectNode node("");
        show(*found, node);
        if (!add(node)) return;
        ++scan_.shown;
      }
    }
    end(list);
  }
  /// Called from `find` of a list: the object at this position cannot be read. The first such
  /// reason is shown.
  void unreadable(std::uint64_t place, std::string_view why);

  /// Counts the objects of each class: `classify(place)` returns the class name, which must have
  /// static storage; empty if there is no object.
  template <class Classify>
  void tally(std::string_view name, std::uint64_t end, Classify&& classify) {
    if (!due()) return;
    while (scan_.place < end) {
      if (pause()) return;
      const std::string_view found = classify(scan_.place++);
      work_->charge(found.empty() ? kEmptyWork : kObjectWork);
      if (!found.empty()) ++tally_[found];
    }
    end_tally(name);
  }

  /// True if any of the next `steps` calls has something to do.
  bool wants(std::uint64_t steps) const { return !paused_ && at_ + steps > done_; }

 private:
  static constexpr std::int64_t kEmptyWork = 5;     ///< cost of an empty position
  static constexpr std::int64_t kObjectWork = 100;  ///< cost of examining an object
  static constexpr std::int64_t kShowWork = 1000;
  static constexpr std::int64_t kByteWork = 10;  ///< cost of formatting and printing one byte

  /// Progress of the current list or tally.
  struct Scan {
    bool begun = false;
    std::uint64_t place = 0;
    std::uint64_t found = 0;
    std::uint64_t shown = 0;
    std::optional<std::uint64_t> next;  ///< the first that is omitted
    std::string unreadable;
  };

  /// True if this call is the next to be done.
  bool due();
  void did();
  /// True if this turn's work is spent.
  bool pause() { return paused_ = paused_ || work_->spent(); }
  /// Prints the contents of `node`. False if there was no room.
  bool add(const InspectNode& node);

  std::uint64_t first(const InspectList& list) const { return options_.from >> list.shift; }
  /// False if the list is omitted.
  bool begin(const InspectList& list);
  bool scan_ends(const InspectList& list) const;
  /// Counts an object that was found. True if it must be shown.
  bool counts(const InspectList& list, std::uint64_t place);
  void end(const InspectList& list);
  void end_tally(std::string_view name);

  Options options_;
  InspectWriter out_;
  WorkBudget* work_ = nullptr;
  std::uint64_t at_ = 0;    ///< calls in this turn
  std::uint64_t done_ = 0;  ///< calls completed
  bool paused_ = false;
  bool cut_ = false;
  std::string reason_;
  Scan scan_;
  std::map<std::string_view, std::uint64_t> tally_;
};

}  // namespace softhca::util
