// SRQs in the program's memory (kernel interface 4.9).
#pragma once

#include <span>

#include "uverbs/event_files.h"
#include "uverbs/method.h"
#include "uverbs/objects.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of SRQs.
class SharedQueueCommands {
 public:
  SharedQueueCommands(const OpenFile& file, const EventFiles& events)
      : device_(file.device),
        memory_(file.memory),
        objects_(file.objects),
        user_(file.user),
        events_(events) {}

  static std::span<const Method<SharedQueueCommands>> methods();
  static std::span<const WriteCommand<SharedQueueCommands>> write_commands();

 private:
  Errno create_srq(Request& request);
  Errno find_objects(const Request& request, SharedQueue& srq);
  Errno destroy_srq(Request& request);
  Errno modify_srq(Request& request);
  Errno query_srq(Request& request);

  Device& device_;
  const UserMemory& memory_;
  Objects& objects_;
  const UserContext& user_;
  const EventFiles& events_;
};

}  // namespace softhca::uverbs
