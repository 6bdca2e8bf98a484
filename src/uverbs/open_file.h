// The state that all commands of an open device file share.
#pragma once

#include "uverbs/device.h"
#include "uverbs/object_table.h"
#include "uverbs/user_context.h"
#include "uverbs/user_memory.h"

namespace softhca::uverbs {

/// The device and the program of a command.
struct OpenFile {
  Device& device;
  const UserMemory& memory;
  Objects& objects;
  UserContext& user;
};

}  // namespace softhca::uverbs
