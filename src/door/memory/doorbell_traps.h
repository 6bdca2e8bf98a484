// Lets an engine with queues sleep without losing a doorbell (kernel interface 12.4). Doorbell
// pages are made read-only, and a store to one wakes the engine. The program writes a queue's
// record before the doorbell page, so a further poll of the records finds all earlier work.
#pragma once

#include <sys/types.h>

#include <functional>

namespace softhca::door {

/// Whether the file is one whose pages are doorbells.
using IsDoorbellFile = std::function<bool(dev_t device, ino_t inode)>;

/// Arms traps: a store to a doorbell page of a file for which `is_ours` holds goes through and
/// signals `wake`, an eventfd. Stores in flight are visible when this returns. False: a thread of
/// the program blocks SIGSEGV, or the kernel lacks support; nothing has changed then. To be called
/// by one thread of a process. `is_ours` is called without a lock.
bool arm_doorbell_traps(const IsDoorbellFile& is_ours, int wake);
/// Makes the pages writable again. Mappings that have replaced a page are left alone.
void disarm_doorbell_traps(const IsDoorbellFile& is_ours);
/// Forgets the pages, once no thread stores to one any more and no late handler can come. @pre
/// disarmed
void forget_doorbell_traps();
/// To be called in a forked child: stores no longer signal `wake`, which is the parent's.
void leave_doorbell_traps_to_parent();
/// To be called in the handler of SIGSEGV. True: the access to `address` hit a trap, and can be
/// repeated. False: it is another page, perhaps one that the program has mapped in place of a
/// doorbell page. (Before Linux 6.11 only the next disarm_doorbell_traps() notices that.)
bool trap_doorbell(const void* address);

}  // namespace softhca::door
