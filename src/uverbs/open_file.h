// The state that all commands of an open device file share.
#pragma once

#include <cstdint>

#include "uverbs/device.h"
#include "uverbs/event_files.h"
#include "uverbs/object_table.h"
#include "uverbs/request.h"
#include "uverbs/user_context.h"
#include "uverbs/user_memory.h"

namespace softhca::uverbs {

/// The device and the program of a command, and the objects and event files of the program.
struct OpenFile {
  Device& device;
  const UserMemory& memory;
  Objects& objects;
  UserContext& user;
  const EventFiles& events;

  /// Finds the object that an attribute of a request names.
  template <class T>
  Errno find(const Request& request, std::uint16_t attribute, T*& object) const {
    return objects.find(request.number(attribute), object);
  }
};

}  // namespace softhca::uverbs
