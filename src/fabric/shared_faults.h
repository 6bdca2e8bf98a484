// The network rules of a run, in a file that all its processes map: they see a rule when it is
// added, also those that start later, and count in the same counters.
//
// One process writes rules, and does not map the file. The others only count. Only the run's user
// may open the file. If a program makes it shorter, the readers lose their rules: an access faults
// (SIGBUS), and a process that survives that (os/memory_faults.h) does not touch the file again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/network_faults.h"
#include "os/memory_faults.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::fabric {

/// The contents of the file.
struct SharedFaults {
  static constexpr std::size_t kSlots = 64;
  static constexpr std::size_t kTextMax = 480;

  struct Slot {
    std::uint32_t id = 0;  ///< never used twice; 0: free
    std::uint32_t size = 0;
    NetworkFaults::Counters counters;
    std::array<char, kTextMax> text;
  };

  std::atomic<std::uint32_t> generation = 0;  ///< odd: slots are being changed
  std::array<Slot, kSlots> slots;

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

/// The process that adds and removes rules.
class FaultBook {
 public:
  using Id = std::uint32_t;

  /// Creates the file. `ports`: the names that port= may have.
  static util::Result<FaultBook> create(std::string path, std::vector<std::string> ports);

  const std::string& path() const { return path_; }
  /// Returns the rule's line of the list. Fails if the text is no network rule.
  util::Result<std::string> add(std::string_view text);
  /// False if there is no such rule.
  bool remove(Id id);
  void clear();
  /// A line for each rule, with its counters. Whatever processes of the run write to the file, it
  /// changes only their numbers.
  std::string list() const;
  /// Answers the words of `softhca fault` behind the socket.
  util::Result<std::string> answer(std::string_view verb, std::string_view argument);

 private:
  struct Rule {
    std::size_t slot;
    FaultRule rule;
  };

  FaultBook(std::string path, os::UniqueFd file, std::vector<std::string> ports)
      : path_(std::move(path)), file_(std::move(file)), ports_(std::move(ports)) {}
  std::string line(Id id, const Rule& rule) const;
  util::Result<void> write(std::size_t slot, Id id, std::string_view text);

  std::string path_;
  os::UniqueFd file_;
  std::vector<std::string> ports_;
  std::map<Id, Rule> rules_;
  Id last_ = 0;
  std::uint32_t generation_ = 0;
};

/// A process whose devices the rules act on.
class FaultReader {
 public:
  /// If the file cannot be mapped, there are no rules, and the log says why. @pre `faults` outlives
  /// this
  FaultReader(const std::string& path, NetworkFaults& faults);
  ~FaultReader();
  FaultReader(const FaultReader&) = delete;
  FaultReader& operator=(const FaultReader&) = delete;

  /// Takes what has changed since the last call.
  void follow() {
    if (shared_ == nullptr || is_lost_) return;
    const bool had_fault = os::MemoryFaults::pending();
    const auto generation = shared_->generation.load(std::memory_order_acquire);
    touch_end();
    if (!had_fault && os::MemoryFaults::pending()) [[unlikely]]
      return lose();
    if (generation != generation_) read();
  }

 private:
  void read();
  void lose();
  /// A file that is too short lacks its last page in any case.
  void touch_end() const {
    const volatile char& last = shared_->slots.back().text.back();
    [[maybe_unused]] const char byte = last;
  }

  NetworkFaults& faults_;
  SharedFaults* shared_ = nullptr;                    ///< null: none
  bool is_lost_ = false;                              ///< the file has become too short
  std::uint32_t generation_ = 0;                      ///< of the file at the last read()
  std::map<std::uint32_t, NetworkFaults::Id> rules_;  ///< by the number in the file
};

}  // namespace softhca::fabric
