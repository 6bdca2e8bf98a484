// The verbs of a JingZhao HCA.
#pragma once

#include "driver/jingzhao/hca.h"
#include "driver/verbs/device.h"

namespace softhca::driver::jingzhao {

/// Brings the HCA up. `mac`: the port's address, because the document lets no device report its
/// own.
util::Result<verbs::Device> open_verbs(Host& host, const Mac& mac);

}  // namespace softhca::driver::jingzhao
