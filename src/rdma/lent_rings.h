// The ring pools that the QPs of an engine share. Internal.
#pragma once

#include "rdma/responder.h"
#include "rdma/send_entry.h"
#include "rdma/spare_rings.h"

namespace softhca::rdma {

struct LentRings {
  SpareRings<SendEntry> requests;
  SpareRings<Responder::Answer> answers;
};

}  // namespace softhca::rdma
