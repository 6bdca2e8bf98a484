// The names of the JingZhao document that fault rules may use, and what the document does not have.
#pragma once

#include "hca/fault_dialect.h"

namespace softhca::jingzhao {

const hca::FaultDialect& fault_dialect();

}  // namespace softhca::jingzhao
