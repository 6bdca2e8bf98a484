// Whether to look for more work before going to sleep: learnt, for each source of work.
//
// A sleeper is woken by the kernel, which takes several microseconds; one who still looks finds the
// next message at once. That pays after a client whose messages draw further ones soon (a ping that
// draws a pong), and only while a processor is free for it. Where the looking keeps the very client
// off its processor that was to answer, nothing comes, and one must sleep at once. Which of the two
// holds depends on the client, the scheduler and the machine, so it is tried: looking in vain makes
// the next tries after this source rarer and rarer, up to one in kRarest, and a find makes every
// message of the source a try again.
#pragma once

#include <cstdint>
#include <vector>

#include "util/clock.h"

namespace softhca::vfio_user {

class AdaptivePoll {
 public:
  static constexpr std::uint32_t kRarest = 1024;

  /// `window`: how long to look after each message. Zero: never.
  explicit AdaptivePoll(util::Duration window) : window_(window) {}

  /// A message of `source` (a small number, e.g. its file descriptor) has been handled.
  void message(unsigned source, util::Time now);
  /// The functions had work of their own: a look under way begins anew.
  void work(util::Time now);
  /// True while one should look again instead of sleeping.
  bool look(util::Time now);

 private:
  struct Source {
    std::uint32_t pause = 0;    ///< messages between two tries
    std::uint32_t waiting = 0;  ///< messages until the next
  };
  Source& source(unsigned number);

  util::Duration window_;
  bool looking_ = false;
  unsigned after_ = 0;  ///< the source whose message began the look
  util::Time until_{};
  std::vector<Source> sources_;
};

}  // namespace softhca::vfio_user
