// Clients that work until they are killed. Each is a process with one kind of work.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace softhca::soak {

enum class Work : std::uint8_t {
  kRdmaWrites,    ///< between two queue pairs of an HCA that is up
  kSdxiCopies,    ///< of a function that is up
  kMaps,          ///< DMA_MAP and DMA_UNMAP, in random order
  kHalfMessages,  ///< with descriptors; the second half never comes
  kInterrupts,    ///< sets, triggers and removes eventfds, and resets
};

class Victim {
 public:
  /// Works on the device of `socket`. `seed` decides what it does.
  Victim(std::string socket, Work work, std::uint64_t seed);
  /// Kills it, whatever it is doing.
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

 private:
  pid_t pid_;
};

}  // namespace softhca::soak
