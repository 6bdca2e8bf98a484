// An honest client in its own thread: its work is checked byte by byte, and it reads registers.
#pragma once

#include <sys/types.h>

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

/// A device that is up, and its guest's work. Every method throws on an error.
struct Worker {
  virtual ~Worker() = default;
  virtual driver::Host& host() = 0;
  /// Posts the work of a round.
  virtual void begin(std::uint32_t round) = 0;
  /// True if the round is done. Then checks every byte.
  virtual bool done(std::uint32_t round) = 0;
};
using MakeWorker = std::function<std::unique_ptr<Worker>()>;

/// RDMA WRITEs of 64 KiB from one queue pair of an HCA to another. `number` selects its address.
MakeWorker rdma_writes(std::string socket, unsigned number);
/// SDXI copies of 64 KiB.
MakeWorker sdxi_copies(std::string socket);

class Honest {
 public:
  /// Works until end(). `what` names it in messages. `server`: the process whose main thread
  /// answers; 0: not known.
  Honest(const char* what, MakeWorker make, pid_t server = 0);
  ~Honest();
  Honest(const Honest&) = delete;
  Honest& operator=(const Honest&) = delete;

  /// True if it completes `rounds` more rounds `within` this time.
  bool advances(std::uint64_t rounds, util::Duration within) const;
  /// Stops it, and expects that there was no error. Prints the waits.
  void end();
  /// Its longest register read, without the time in which it or the server waited for a processor.
  /// Valid after end().
  util::Duration longest_read() const { return reads_.empty() ? util::Duration{} : reads_.back(); }

 private:
  void work();

  const char* what_;
  MakeWorker make_;
  const pid_t server_;
  std::atomic<bool> ending_ = false;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::vector<util::Duration> reads_;  ///< duration of each register read, as longest_read()
  std::string error_;                  ///< the first error
  std::thread thread_;
};

}  // namespace softhca::neighbours
