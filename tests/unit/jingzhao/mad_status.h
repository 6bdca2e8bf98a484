// The status of the answer to an SMP.
#pragma once

#include "subnet/mad.h"
#include "util/field.h"

namespace softhca::jingzhao::test {

inline subnet::MadStatus status_of(const subnet::Mad& mad) {
  return subnet::MadStatus(util::View<subnet::Smp>(mad).get(subnet::Smp::status));
}

}  // namespace softhca::jingzhao::test
