// The vendor_error_syndrome of error CQEs, which programs print as vendor_err. PRM Table 74 leaves
// it undocumented. Where public logs show the number of ConnectX hardware, the device gives that
// number. Everywhere else it gives its own reason.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "rdma/reasons.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// The kind of queue whose WQE ends in an error CQE.
enum class ErrorQueue : std::uint8_t { kQpSends, kSq, kReceives };

/// A number that hardware gives.
struct VendorError {
  spec::connectx::cqe_syndrome syndrome;  ///< the CQE's syndrome
  std::optional<ErrorQueue> queue;        ///< nothing: any queue
  std::uint8_t number;
  std::string_view text;
  std::string_view source;  ///< public logs or headers that show it
};
/// First those that a device here gives, then those that only hardware gives.
std::span<const VendorError> vendor_errors();

/// The byte for the error CQE.
std::uint8_t vendor_error(ErrorQueue queue, spec::connectx::cqe_syndrome syndrome,
                          rdma::Reason reason);

}  // namespace softhca::connectx
