// The verbs of a ConnectX, or of a card of its family.
//
//   auto device = connectx::open_verbs(host).value();
#pragma once

#include "driver/connectx/hca.h"
#include "driver/verbs/device.h"

namespace softhca::driver::connectx {

/// Brings the card up (Hca::open), and reports its features and limitations: from its capabilities,
/// and from the document of the card, which the PCI device ID selects.
util::Result<verbs::Device> open_verbs(Host& host, const Hca::Options& options);
inline util::Result<verbs::Device> open_verbs(Host& host) {
  return open_verbs(host, Hca::Options());
}

}  // namespace softhca::driver::connectx
