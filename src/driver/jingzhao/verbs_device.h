// A JingZhao HCA behind the verbs.
#pragma once

#include "driver/jingzhao/hca.h"
#include "driver/verbs/device.h"

namespace softhca::driver::jingzhao {

/// Brings the HCA up. `mac`: the document has no place where a device would say its own.
util::Result<verbs::Device> open_verbs(Host& host, const Mac& mac);

}  // namespace softhca::driver::jingzhao
