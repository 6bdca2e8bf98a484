// Memory of every kind, two pages each.
#pragma once

#include "world.h"

namespace oracle {

enum class Memory {
  kAnonymous,
  kReadOnly,
  kNoAccess,
  kWriteOnly,
  kShared,
  kFile,
  kFileReadOnly,
  kFilePrivate,
  kHole,
  kEndsInHole,
  kPastFile,
  kText,
  kConstants,
  kStack
};

const char* memory_name(Memory memory);
char* memory_of(Memory memory);

}  // namespace oracle
