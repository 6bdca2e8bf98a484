// Clients that live until they are killed: each is a process, and does its kind of work without
// end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace softhca::soak {

enum class Work : std::uint8_t {
  kRdmaWrites,    ///< of an HCA that was brought up, from one of its queue pairs to another
  kSdxiCopies,    ///< of a function that was brought up
  kMaps,          ///< DMA_MAP and DMA_UNMAP, in no order
  kHalfMessages,  ///< with descriptors, whose rest never comes
  kInterrupts,    ///< eventfds that are set, triggered and taken away, and resets
};

class Victim {
 public:
  /// At work on the device of `socket`. `seed` decides what it does.
  Victim(std::string socket, Work work, std::uint64_t seed);
  /// Kills it, wherever it is.
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

 private:
  pid_t pid_;
};

}  // namespace softhca::soak
