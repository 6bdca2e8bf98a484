// The services of the host, which peers request (IBTA 12.7.2): its listeners.
#pragma once

#include <cstdint>

#include "cm/mad.h"
#include "cm/message_reader.h"
#include "util/clock.h"

namespace softhca::cm {

/// The answer to a request.
enum class Response : std::uint8_t {
  kNone,       ///< none yet, or none at all
  kNoService,  ///< nothing listens
  kRefused,    ///< by the listener
};

class Services {
 public:
  virtual ~Services() = default;
  /// Handles a request that arrives for the first time. To let a program accept or reject it, call
  /// Connections::begin().
  virtual Response take(const Received& message, const RequestView& request, util::Time now) = 0;
};

}  // namespace softhca::cm
