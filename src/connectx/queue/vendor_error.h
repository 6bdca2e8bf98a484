// The vendor_error_syndrome of error CQEs, which programs print as vendor_err. PRM Table 74 leaves
// it undocumented. A driver finds the number that ConnectX hardware gives, where public logs of
// hardware show it. Everywhere else it finds the number of our own reason.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "rdma/reasons.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// The queue whose WQE ends with an error CQE.
enum class ErrorQueue : std::uint8_t { kQpSends, kSq, kReceives };

/// A number of the hardware.
struct VendorError {
  spec::connectx::cqe_syndrome syndrome;  ///< that it goes with
  std::optional<ErrorQueue> queue;        ///< nothing: each
  std::uint8_t number;
  std::string_view text;
  std::string_view source;  ///< public logs or headers that show it
};
/// Those that a device here gives, then those that only hardware gives.
std::span<const VendorError> vendor_errors();

/// The byte for an error CQE.
std::uint8_t vendor_error(ErrorQueue queue, spec::connectx::cqe_syndrome syndrome,
                          rdma::Reason reason);

}  // namespace softhca::connectx
