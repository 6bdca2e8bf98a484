// An honest client: work whose every byte is checked, and register reads, in a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "driver/host.h"
#include "util/clock.h"

namespace softhca::neighbours {

/// A device that was brought up, and what its guest does with it. All of it throws if anything is
/// wrong.
struct Worker {
  virtual ~Worker() = default;
  virtual driver::Host& host() = 0;
  /// Posts the work of a round.
  virtual void begin(std::uint32_t round) = 0;
  /// Whether it is done. If so, looks at every byte.
  virtual bool done(std::uint32_t round) = 0;
};
using MakeWorker = std::function<std::unique_ptr<Worker>()>;

/// RDMA WRITEs of 64 KiB from one queue pair of an HCA to another. `number` makes its address.
MakeWorker rdma_writes(std::string socket, unsigned number);
/// SDXI copies of 64 KiB.
MakeWorker sdxi_copies(std::string socket);

class Honest {
 public:
  /// Works until end(). `what`: for messages.
  Honest(const char* what, MakeWorker make);
  ~Honest();
  Honest(const Honest&) = delete;
  Honest& operator=(const Honest&) = delete;

  /// Has done so many rounds more, at most so long from now.
  bool advances(std::uint64_t rounds, util::Duration within) const;
  /// Stops it, and expects that all went well. Prints the waits.
  void end();
  /// Of its register reads, the one that took longest; after end().
  util::Duration longest_read() const { return reads_.empty() ? util::Duration{} : reads_.back(); }

 private:
  void work();

  const char* what_;
  MakeWorker make_;
  std::atomic<bool> ending_ = false;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::vector<util::Duration> reads_;  ///< how long each register read took
  std::string error_;                  ///< what went wrong first
  std::thread thread_;
};

}  // namespace softhca::neighbours
