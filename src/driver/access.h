// What may be done with memory: by its key, and through a queue pair (IBTA 10.6.3, 11.2.4.2).
#pragma once

namespace softhca::driver {

/// What may be done with memory; reading it for own requests always may.
struct MemoryAccess {
  bool local_write = true;  ///< receives, results of reads and atomics
  bool remote_read = false;
  bool remote_write = false;
  bool remote_atomic = false;

  static constexpr MemoryAccess all() { return {true, true, true, true}; }
};

/// What the peer may do with our memory through a queue pair, besides what its memory key allows.
struct RemoteAccess {
  bool read = true;
  bool write = true;
  bool atomic = true;
};

}  // namespace softhca::driver
