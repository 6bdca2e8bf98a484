// The ring pools that the QPs of an engine share. Internal.
#pragma once

#include "rdma/requester.h"
#include "rdma/responder.h"
#include "rdma/spare_rings.h"

namespace softhca::rdma {

struct LentRings {
  SpareRings<Requester::Entry> requests;
  SpareRings<Responder::Answer> answers;
};

}  // namespace softhca::rdma
