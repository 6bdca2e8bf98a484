// Access rights to memory: of a memory key, and through a queue pair (IBTA 10.6.3, 11.2.4.2).
#pragma once

namespace softhca::driver {

/// Rights of a memory key. The program's own requests may always read the memory.
struct MemoryAccess {
  bool local_write = true;  ///< for receives, and for results of reads and atomics
  bool remote_read = false;
  bool remote_write = false;
  bool remote_atomic = false;

  static constexpr MemoryAccess all() { return {true, true, true, true}; }
};

/// Rights of the peer through a queue pair; the memory key must allow the access too.
struct RemoteAccess {
  bool read = true;
  bool write = true;
  bool atomic = true;
};

}  // namespace softhca::driver
