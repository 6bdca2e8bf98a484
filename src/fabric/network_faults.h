// The network rules of a server or of a run. FaultyLink (faulty_link.h) applies them; every firing
// is counted, so that a user who injects a fault can see that it happened.
//
// The thread of the links owns this object. Counters may be in memory that processes share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/fault_rule.h"
#include "util/clock.h"
#include "util/time_source.h"

namespace softhca::fabric {

class NetworkFaults {
 public:
  using Id = unsigned;

  struct Counters {
    std::atomic<std::uint64_t> matched = 0;  ///< frames that the rule matched
    std::atomic<std::uint64_t> fired = 0;    ///< times that it had an effect
    std::atomic<std::uint64_t> lost = 0;     ///< frames lost for want of room, or on its dead link
  };
  struct Entry {
    Id id;
    FaultRule rule;
    Counters* counters;  ///< its own, or those of the caller of add()
    std::unique_ptr<Counters> own = nullptr;
    /// The end of a window that has begun.
    std::optional<util::Time> acts_until = std::nullopt;
  };

  /// Notified when rules were added or removed.
  class Observer {
   public:
    virtual void handle_rules() = 0;

   protected:
    ~Observer() = default;
  };

  /// Most rules at a time: every frame is compared with each.
  static constexpr std::size_t kMax = 256;

  explicit NetworkFaults(util::TimeSource clock = util::monotonic_now) : clock_(std::move(clock)) {}
  NetworkFaults(const NetworkFaults&) = delete;
  NetworkFaults& operator=(const NetworkFaults&) = delete;

  /// `shared`: counters that outlive the rule; null: it gets its own. @pre fewer than kMax
  Id add(FaultRule rule, Counters* shared = nullptr);
  /// False if there is no such rule.
  bool remove(Id id);
  void clear();
  std::span<const std::unique_ptr<Entry>> rules() const { return entries_; }
  /// Null if there is no such rule.
  const Entry* find(Id id) const;
  util::Time now() const { return clock_(); }

  /// @pre detach() comes before its end
  void attach(Observer& observer) { observers_.push_back(&observer); }
  void detach(Observer& observer) { std::erase(observers_, &observer); }

 private:
  void changed();

  const util::TimeSource clock_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Observer*> observers_;
  Id next_ = 1;
};

/// "port=*,do=lose: matched 9, fired 9", and the frames lost besides if there are any.
std::string counts_text(const FaultRule& rule, const NetworkFaults::Counters& counters);

}  // namespace softhca::fabric
