// Frames of one direction of a link that wait: for their time, or until others have passed them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "util/clock.h"
#include "wire/frame.h"

namespace softhca::fabric {

class HeldFrames {
 public:
  static constexpr std::size_t kFramesMax = 4096;
  static constexpr std::size_t kBytesMax = std::size_t{16} << 20;

  struct Terms {
    util::Time due;          ///< it waits until then, whatever passes
    unsigned passes = 0;     ///< frames that must pass then; 0: only time counts
    util::Time latest = {};  ///< with `passes`: it does not wait longer for them; not before `due`
    unsigned owner = 0;      ///< the rule that holds it
  };

  /// Holds a copy that owns its payload. False: there is no room, no memory, or a fault on memory
  /// of the program is pending.
  bool hold(const wire::Frame& frame, const Terms& terms);
  /// The next one that is due, in the order of their times; of those of one time, in the order in
  /// which they came.
  std::optional<wire::Frame> take_due(util::Time now);
  /// A frame that was not held has passed all of them.
  void note_pass() { note_pass(count_); }
  /// Makes the frames due that a rule holds for which `holds(owner)` is false.
  template <class Holds>
  void release_others(Holds&& holds) {
    for (auto at = frames_.begin(); at != frames_.end();) {
      const auto next = std::next(at);
      if (!holds(at->second.terms.owner)) move(at, util::Time::min());
      at = next;
    }
  }
  util::Time next() const { return frames_.empty() ? util::kNever : frames_.begin()->first; }
  /// The rule that holds the frame of next(); 0: none.
  unsigned next_owner() const { return empty() ? 0 : frames_.begin()->second.terms.owner; }
  bool empty() const { return frames_.empty(); }

 private:
  struct Held {
    wire::Frame frame;
    Terms terms;
    std::uint64_t number;  ///< in the order in which they came
  };
  using Frames = std::multimap<util::Time, Held>;

  void note_pass(std::uint64_t number);
  void move(Frames::iterator at, util::Time due);

  Frames frames_;  ///< by time
  std::size_t bytes_ = 0;
  std::uint64_t count_ = 0;    ///< how many have been held
  std::size_t reordered_ = 0;  ///< how many wait for others to pass
};

}  // namespace softhca::fabric
