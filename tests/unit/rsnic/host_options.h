// A host with an RSNIC-IP.
#pragma once

#include "connectx/fake_host.h"
#include "rsnic/options.h"

namespace softhca::rsnic {

inline connectx::HostOptions host_options() {
  const auto options = device_options();
  return {.model = options.model, .limits = options.limits};
}

}  // namespace softhca::rsnic
