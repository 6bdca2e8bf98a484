// How an engine with queues sleeps, and loses no doorbell (host-door contract 12.4): the doorbell
// pages are made read-only, and who stores to one wakes it. The records of queues are written
// before the page, so that everything up to then is found by looking at these once more.
#pragma once

#include <sys/types.h>

#include <functional>

namespace softhca::door {

/// Whether the file is one whose pages are doorbells.
using IsDoorbellFile = std::function<bool(dev_t device, ino_t inode)>;

/// From now on no store to a doorbell page of a file for which `is_ours` holds goes unnoticed: it
/// goes through, and writes to `wake`, an eventfd. Stores that were under way are visible when this
/// returns. False: it cannot be done, since a thread of the program blocks SIGSEGV, or the kernel
/// does not help; nothing has changed then. By one thread of a process. `is_ours` is called without
/// a lock.
bool arm_doorbell_traps(const IsDoorbellFile& is_ours, int wake);
/// Stores are stores again. What else the program has put in the place of a page stays as it is.
void disarm_doorbell_traps(const IsDoorbellFile& is_ours);
/// Nobody stores to a doorbell page any more: no handler comes late. @pre disarmed
void forget_doorbell_traps();
/// To be called in a forked child: stores wake no thread any more, since `wake` is the parent's.
void leave_doorbell_traps_to_parent();
/// In the handler of SIGSEGV: the access to `address` is such a store, and can be repeated now.
bool trap_doorbell(const void* address);

}  // namespace softhca::door
