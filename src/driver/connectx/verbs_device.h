// A ConnectX, or a card of its family, behind the verbs.
//
//   auto device = connectx::open_verbs(host).value();
#pragma once

#include "driver/connectx/hca.h"
#include "driver/verbs/device.h"

namespace softhca::driver::connectx {

/// Brings the card up (Hca::open) and says what it can and cannot do: from its capabilities, with
/// the section of the document of the card that the PCI device ID names.
util::Result<verbs::Device> open_verbs(Host& host, const Hca::Options& options);
inline util::Result<verbs::Device> open_verbs(Host& host) {
  return open_verbs(host, Hca::Options());
}

}  // namespace softhca::driver::connectx
