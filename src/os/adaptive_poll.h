// Decides, for each source of work, whether to poll for more work before sleeping.
//
// The kernel takes several microseconds to wake a sleeper; a thread that polls finds the next
// message immediately. Polling pays after a client whose messages soon cause further ones (a ping
// that causes a pong), and only while a processor is free for it. If polling keeps that client off
// its processor, nothing arrives, and the thread must sleep immediately. Which case holds depends
// on the client, the scheduler and the machine, so it is measured. After each poll in vain, fewer
// messages of this source start a poll, down to one in kRarest. After a successful poll, every
// message of the source starts one again.
#pragma once

#include <cstdint>
#include <vector>

#include "util/clock.h"

namespace softhca::os {

class AdaptivePoll {
 public:
  static constexpr std::uint32_t kRarest = 1024;

  /// `window`: how long to poll after each message. Zero: never.
  explicit AdaptivePoll(util::Duration window) : window_(window) {}

  /// Reports that a message of `source` (a small number, e.g. its file descriptor) was handled.
  void message(unsigned source, util::Time now);
  /// Reports work that no message caused, such as a device's own: a poll under way starts over.
  void work(util::Time now);
  /// True if the caller should poll again instead of sleeping.
  bool look(util::Time now);

 private:
  struct Source {
    std::uint32_t pause = 0;    ///< messages between two tries
    std::uint32_t waiting = 0;  ///< messages until the next try
  };
  Source& source(unsigned number);

  util::Duration window_;
  bool looking_ = false;
  unsigned after_ = 0;  ///< the source whose message began the poll
  util::Time until_{};
  std::vector<Source> sources_;
};

}  // namespace softhca::os
