// The result of a request that a responder executes. Internal.
#pragma once

#include <cstdint>

#include "rdma/reasons.h"

namespace softhca::rdma {

/// Its effect on the QP depends on the service.
struct RequestOutcome {
  /// kInvalid includes operations for which the QP is not set up (IBTA 9.9.3, an unsupported
  /// opcode); kAccess concerns memory.
  enum class Kind : std::uint8_t { kOk, kNotReady, kInvalid, kAccess, kOperation };
  Kind kind = Kind::kOk;
  Reason reason = Reason::kNone;
  bool completed = false;  ///< a receive request was completed in error: raise no event

  /// The outcome of a check of an R_Key's memory. Unreachable memory is this host's fault
  /// (IBTA 9.7.5.2.5); any other reason means that the key, or one behind it, does not grant the
  /// access.
  static RequestOutcome of_memory(Reason fault) {
    return {fault == Reason::kMemoryUnreachable ? Kind::kOperation : Kind::kAccess, fault};
  }
  bool ok() const { return kind == Kind::kOk; }
};

}  // namespace softhca::rdma
