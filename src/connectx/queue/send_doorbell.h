// The doorbell register of send queues (PRM Table 13): the first 8 bytes of a WQE.
#pragma once

#include <cstdint>

#include "spec/connectx/wqe.h"
#include "util/bits.h"

namespace softhca::connectx {

/// Offset of the dword that names the queue. Software stores it with the other dword, or after it.
inline constexpr std::uint32_t kSendNumber =
    spec::connectx::send_doorbell_register::sq_number.kOffset;

/// The queue that this dword names: a QPN or SQN.
constexpr std::uint32_t queue_of_doorbell(std::uint32_t dword) {
  using Doorbell = spec::connectx::send_doorbell_register;
  return util::part_of(dword, Doorbell::sq_number);
}

}  // namespace softhca::connectx
