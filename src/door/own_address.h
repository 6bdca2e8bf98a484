// The IPv4 address of a process, and a file that is locked while it lives: so that an address which
// is given to many is that of the first, and others see when a process has gone, however it went.
#pragma once

#include <string>

#include "driver/address.h"
#include "vfio_user/unique_fd.h"

namespace softhca::door {

struct OwnAddress {
  driver::Gid gid;
  vfio_user::UniqueFd lock;
};

/// What `softhca run --address` says ($SOFTHCA_ADDRESS), if no other process of the run has it;
/// else that of process `number` of the hub. `directory`: of the run.
OwnAddress take_address(const std::string& directory, unsigned number);

/// The process that had this address has ended. False also for who is no process of the run.
bool is_gone(const std::string& directory, const driver::Gid& gid);

}  // namespace softhca::door
