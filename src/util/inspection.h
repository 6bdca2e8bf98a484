// An inspect tree that is made in pieces, so that a device of hundreds of thousands of objects
// holds up nobody: some of it in each turn, of each kind of object a few, and a limit for all.
//
// What is inspected is called anew in each turn, makes the same calls in the same order, and holds
// no state: the Inspection knows which of them it has had, and passes them over. So nothing refers
// to an object from one turn to the next, which objects may not live to see.
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

/// One kind of object. They stand in places [0, end); a place may be empty.
struct InspectList {
  std::string_view name;
  std::uint64_t end;
  /// How many there are; nothing: unknown, so that all places are looked at.
  std::optional<std::uint64_t> count;
  unsigned shift = 0;          ///< the number of a place is the place shifted by so much
  std::int64_t look_work = 5;  ///< to find what is in a place (util::WorkBudget)
  bool there = true;           ///< false: the list is left out
};

class Inspection {
 public:
  /// Objects of each kind that are shown.
  static constexpr std::uint32_t kCount = 16;
  static constexpr std::uint32_t kCountMax = 256;
  static constexpr std::size_t kBytesMax = 4 << 20;

  struct Options {
    bool json = false;
    std::uint64_t from = 0;         ///< of each kind those with this number, or a higher one
    std::uint32_t count = kCount;   ///< at most so many
    std::size_t bytes = kBytesMax;  ///< of the answer, save for a closing line or two
  };

  Inspection(std::string_view name, const Options& options);

  // Who makes the answer ------------------------------------------------------------------------

  /// Calls `all` for what fits into `work`. True: there is nothing left to do.
  template <class All>
  bool go_on(WorkBudget& work, All&& all) {
    work_ = &work;
    at_ = 0;
    paused_ = false;
    all(*this);
    return !paused_ || cut_;
  }
  /// Nothing more is shown, for a reason that the answer tells.
  void cut(std::string_view reason);
  /// The answer, well-formed wherever it has stopped. The inspection has ended.
  std::string finish();

  // What is inspected ---------------------------------------------------------------------------

  /// Values: `fill` gets a node, whose children stand here.
  template <class Fill>
  void values(Fill&& fill) {
    if (!due()) return;
    InspectNode node("");
    fill(node);
    if (add(node)) did();
  }
  /// The same in a part of their own.
  template <class Fill>
  void part(std::string_view name, Fill&& fill) {
    values([&](InspectNode& node) { fill(node.child(name)); });
  }
  /// A part of parts, which `body` adds.
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

  /// Objects of one kind: `find(place)` gives a pointer or an optional, `show(object, node)` adds
  /// it to the node. After them stand how many there are, and how to see those that are left out.
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
  /// From `find` of a list: what is in this place cannot be seen. The first of these is told.
  void unreadable(std::uint64_t place, std::string_view why);

  /// How many objects of each class there are: `classify(place)` gives its name, which lasts for
  /// ever; an empty one: there is none.
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

  /// Whether any of the next `steps` calls has something to do.
  bool wants(std::uint64_t steps) const { return !paused_ && at_ + steps > done_; }

 private:
  static constexpr std::int64_t kEmptyWork = 5;     ///< to see that a place is empty
  static constexpr std::int64_t kObjectWork = 100;  ///< to look into an object
  static constexpr std::int64_t kShowWork = 1000;
  static constexpr std::int64_t kByteWork = 10;  ///< to make one, and to print it

  /// How far the present list or tally is.
  struct Scan {
    bool begun = false;
    std::uint64_t place = 0;
    std::uint64_t found = 0;
    std::uint64_t shown = 0;
    std::optional<std::uint64_t> next;  ///< the first one that is left out
    std::string unreadable;
  };

  /// Whether the call is the one that is to be done now.
  bool due();
  void did();
  /// True if there is no time left in this turn.
  bool pause() { return paused_ = paused_ || work_->spent(); }
  /// Prints what is in `node`. False if there was no room for it.
  bool add(const InspectNode& node);

  std::uint64_t first(const InspectList& list) const { return options_.from >> list.shift; }
  /// False: the list is not there.
  bool begin(const InspectList& list);
  bool scan_ends(const InspectList& list) const;
  /// One more was found. True if it is to be shown.
  bool counts(const InspectList& list, std::uint64_t place);
  void end(const InspectList& list);
  void end_tally(std::string_view name);

  Options options_;
  InspectWriter out_;
  WorkBudget* work_ = nullptr;
  std::uint64_t at_ = 0;    ///< calls of this turn
  std::uint64_t done_ = 0;  ///< calls that are done
  bool paused_ = false;
  bool cut_ = false;
  std::string reason_;
  Scan scan_;
  std::map<std::string_view, std::uint64_t> tally_;
};

}  // namespace softhca::util
