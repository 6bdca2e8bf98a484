// The vendor_error_syndrome of error CQEs, which programs print as vendor_err. PRM Table 74 does
// not document it. If public logs show the number of ConnectX hardware, the device reports that
// number, else its own reason.
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

/// A number that hardware reports.
struct VendorError {
  spec::connectx::cqe_syndrome syndrome;  ///< the CQE's syndrome
  std::optional<ErrorQueue> queue;        ///< unset: any queue
  std::uint8_t number;
  std::string_view text;
  std::string_view source;  ///< public logs or headers that show it
};
/// First the numbers that the device reports, then those that only hardware reports.
std::span<const VendorError> vendor_errors();

/// The byte in the error CQE.
std::uint8_t vendor_error(ErrorQueue queue, spec::connectx::cqe_syndrome syndrome,
                          rdma::Reason reason);

}  // namespace softhca::connectx
