// Signals eventfds that belong to a client, without ever blocking on it.
//
// Whether write() blocks on an eventfd with a full counter depends on O_NONBLOCK. That flag belongs
// to the open file, so the client can change it. The kernel itself signals an eventfd without
// blocking, even if it is full. An asynchronous read (Linux AIO) makes the kernel do so: it names
// the eventfd to be signaled on completion. The read is of zero bytes from /dev/null, and is
// complete when io_submit() returns. A read of the eventfd itself has a flag of its own for that
// (RWF_NOWAIT, Linux 5.8).
#pragma once

#include <linux/aio_abi.h>

#include "os/unique_fd.h"

namespace softhca::os {

class EventSignal {
 public:
  /// The instance of the process, because the kernel limits the number of AIO contexts.
  static EventSignal& instance();

  /// True if `fd` is an eventfd. Calls no file system. @pre `fd` is open
  bool is_eventfd(int fd);
  /// Adds 1 to the eventfd's counter. Callable from any thread.
  void raise(int eventfd);
  /// Resets an eventfd that another process shares. The other may have read it meanwhile, and made
  /// read() block.
  static void drain(int eventfd);

  /// False if the kernel has no AIO (CONFIG_AIO), or no context left. raise() then checks
  /// O_NONBLOCK and writes; a client that changes the flag in between can make it block.
  bool never_waits() const { return context_ != 0; }

  EventSignal(const EventSignal&) = delete;
  EventSignal& operator=(const EventSignal&) = delete;

 private:
  EventSignal();
  ~EventSignal();

  /// Submits one read of `file` with `eventfd`. Returns 0 or an errno.
  int submit(int file, int eventfd);

  aio_context_t context_ = 0;
  UniqueFd readable_;    ///< /dev/null
  UniqueFd unreadable_;  ///< /dev/null, opened write-only
};

}  // namespace softhca::os
