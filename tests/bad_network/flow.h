// The ledger of one host's requests to one other host, in the order of their queue pair (IBTA 9.5):
// each has one completion, and each that has succeeded was executed once.
//
// A broken connection leaves requests of unknown fate. The responder has executed a first part of
// them, each once, and nothing of the others but a part of one WRITE.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "site.h"

namespace softhca::bad_network {

struct FlowCounts {
  std::uint64_t posted = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;    ///< with kTransportRetryExceeded
  std::uint64_t flushed = 0;   ///< or failed because of an earlier one
  std::uint64_t atomics = 0;   ///< executed
  std::uint64_t messages = 0;  ///< received
  std::uint64_t bytes = 0;     ///< of data compared

  FlowCounts& operator+=(const FlowCounts& other);
  friend bool operator==(const FlowCounts&, const FlowCounts&) = default;
};

class Flow {
 public:
  Flow(Site& from, Site& to) : from_(from), to_(to) {}

  bool is_full() const { return under_way_.size() == kWindow; }
  bool is_idle() const { return under_way_.empty(); }
  /// When the oldest request that has no completion yet was posted.
  std::optional<util::Time> oldest() const;
  void post(driver::verbs::QueuePair& qp, Random& random, util::Time now);
  /// Takes a completion of the send queue. False: an error.
  bool complete(const driver::Completion& done);
  /// Takes a message that the other host has received in its slot.
  void receive(const driver::Completion& done, unsigned slot);
  /// After both queue pairs are in error, and all of their completions were taken.
  void settle(std::uint64_t shared_adds);
  /// @pre it is idle
  void check_at_rest() const;
  /// Executed FETCH_ADDs to the shared counter, as far as known, and how many more there may be.
  std::uint64_t shared_adds() const { return shared_adds_; }
  std::size_t doubtful_shared_adds() const;
  const FlowCounts& counts() const { return counts_; }

 private:
  enum class Kind : std::uint8_t {
    kSend,
    kSendWithImmediate,
    kWrite,
    kWriteWithImmediate,
    kRead,
    kAdd,
    kSharedAdd,
    kSwap,
  };
  struct Request {
    Kind kind{};
    std::uint64_t id = 0;
    unsigned slot = 0;
    std::uint32_t source = 0;  ///< in the pattern
    std::uint32_t length = 0;
    std::uint64_t before = 0;  ///< what an atomic finds
    std::uint64_t after = 0;   ///< what it leaves
    std::uint64_t compare = 0;
    util::Time posted{};
  };
  struct Contents {
    std::uint32_t source = 0;
    std::uint32_t length = 0;
  };
  /// The words in the responder's memory after some of the requests.
  struct State {
    std::uint64_t counter = 0;
    std::uint64_t word = 0;
  };

  static bool is_message(Kind kind);
  static bool is_write(Kind kind);
  static bool is_atomic(Kind kind);
  static State after(State state, const Request& request);

  Request draw(Random& random, util::Time now);
  driver::SendRequest to_work(const Request& request, driver::Sge& piece) const;
  void check_slot(unsigned slot) const;
  void check_effect(const Request& request);
  void check_written(const Request& request) const;
  bool has_written(const Request& request) const;
  bool is_untouched(unsigned slot) const;
  bool explains(std::size_t executed, std::uint64_t shared_adds) const;
  void note_executed(const Request& request);

  Site& from_;
  Site& to_;
  std::deque<Request> under_way_;   ///< without a completion
  std::deque<Request> doubtful_;    ///< with an error
  std::deque<Request> unreceived_;  ///< messages
  State known_;                     ///< after all that have succeeded
  State last_;                      ///< after all that were posted
  std::array<std::optional<Contents>, kWindow> written_{};
  /// The targets of WRITEs when the last one of each slot was posted.
  std::vector<std::byte> before_ = std::vector<std::byte>(kWindow * std::size_t{kMessageMax});
  std::uint64_t next_ = 0;
  std::uint64_t shared_adds_ = 0;
  FlowCounts counts_;
};

}  // namespace softhca::bad_network
