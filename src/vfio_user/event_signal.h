// Signals eventfds that belong to a client, without ever waiting for it.
//
// Whether write() waits on an eventfd whose counter is full is up to O_NONBLOCK, which belongs to
// the open file, and so to the client as much as to us. The kernel itself signals an eventfd
// without waiting, however full it is. A program has it do so by an asynchronous read (Linux AIO)
// that names the eventfd to be told of its end; the read is one of nothing, from /dev/null, and has
// ended when io_submit() returns.
#pragma once

#include <linux/aio_abi.h>

#include "vfio_user/unique_fd.h"

namespace softhca::vfio_user {

class EventSignal {
 public:
  /// The process's; the kernel has few such contexts to give.
  static EventSignal& instance();

  /// True if `fd` is an eventfd. Asks no file system. @pre `fd` is open
  bool is_eventfd(int fd);
  /// Adds 1 to the eventfd's counter. From any thread.
  void raise(int eventfd);

  /// False on a kernel without AIO (CONFIG_AIO), or one that has none left: raise() then writes,
  /// after a look at O_NONBLOCK, and a client that is quick enough can make it wait.
  bool never_waits() const { return context_ != 0; }

  EventSignal(const EventSignal&) = delete;
  EventSignal& operator=(const EventSignal&) = delete;

 private:
  EventSignal();
  ~EventSignal();

  /// One read on `file` with `eventfd`. 0 or an errno.
  int submit(int file, int eventfd);

  aio_context_t context_ = 0;
  UniqueFd readable_;    ///< /dev/null
  UniqueFd unreadable_;  ///< /dev/null, opened for writing only
};

}  // namespace softhca::vfio_user
