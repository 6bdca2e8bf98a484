// The ring pools that the QPs of an engine share. Internal.
#pragma once

#include "rdma/answer.h"
#include "rdma/send_entry.h"
#include "rdma/spare_rings.h"

namespace softhca::rdma {

struct LentRings {
  SpareRings<SendEntry> requests;
  SpareRings<Answer> answers;
};

}  // namespace softhca::rdma
