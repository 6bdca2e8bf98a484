// The honest client: RDMA whose every byte is checked, and register reads, in a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "util/clock.h"

namespace softhca::neighbours {

class Honest {
 public:
  /// Works until end().
  Honest(std::string socket, unsigned number);
  ~Honest();
  Honest(const Honest&) = delete;
  Honest& operator=(const Honest&) = delete;

  /// Has done so many messages more, at most so long from now.
  bool advances(std::uint64_t messages, util::Duration within) const;
  std::uint64_t messages() const { return messages_; }
  /// Stops it, and expects that all went well. Prints the waits for `what`.
  void end(const char* what);

 private:
  void work();

  std::string socket_;
  unsigned number_;
  std::atomic<bool> ending_ = false;
  std::atomic<std::uint64_t> messages_ = 0;
  std::vector<util::Duration> reads_;  ///< how long each register read took
  std::string error_;                  ///< what went wrong first
  std::thread thread_;
};

}  // namespace softhca::neighbours
