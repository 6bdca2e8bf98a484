// The basic types of the InfiniBand transport, device-independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "spec/infiniband/qp_states.h"
#include "spec/infiniband/services.h"
#include "util/strong.h"
#include "wire/gid.h"
#include "wire/ids.h"
#include "wire/mac_address.h"

namespace softhca::rdma {

using wire::Qpn;
/// A memory key as a work request or a RETH carries it: index and variant byte. A key's LKey and
/// RKey are the same number here.
using MKey = util::Strong<struct MKeyTag, std::uint32_t>;
using Pd = util::Strong<struct PdTag, std::uint32_t>;

using wire::Gid;
using Mac = wire::MacAddress;

using spec::infiniband::QpAttributeSet;
using spec::infiniband::QpState;
using spec::infiniband::QpType;
using spec::infiniband::SendOpcode;
using spec::infiniband::service_rules;
using spec::infiniband::ServiceRules;
using spec::infiniband::state_rules;
using spec::infiniband::to_string;

/// Status of a completed work request; a device maps it to its own completion codes (IBTA 11.6.2).
enum class WorkStatus : std::uint8_t {
  kSuccess,
  kLocalLength,
  kLocalQpOperation,
  kLocalProtection,
  kFlushed,
  kMemoryWindowBind,
  kBadResponse,
  kLocalAccess,
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kTransportRetryExceeded,
  kRnrRetryExceeded,
};

std::string_view to_string(WorkStatus status);

}  // namespace softhca::rdma
