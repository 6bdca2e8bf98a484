// Receive WQs, and RWQ indirection tables over them (kernel interface 4.12).
#pragma once

#include <span>

#include "uverbs/event_files.h"
#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of receive WQs and of their tables.
class ReceiveQueueCommands {
 public:
  ReceiveQueueCommands(const OpenFile& file, const EventFiles& events)
      : device_(file.device),
        memory_(file.memory),
        objects_(file.objects),
        user_(file.user),
        events_(events) {}

  static std::span<const Method<ReceiveQueueCommands>> methods();
  static std::span<const WriteCommand<ReceiveQueueCommands>> write_commands();

 private:
  Errno create_wq(Request& request);
  Errno destroy_wq(Request& request);
  Errno modify_wq(Request& request);
  Errno create_table(Request& request);
  Errno destroy_table(Request& request);

  Device& device_;
  const UserMemory& memory_;
  Objects& objects_;
  const UserContext& user_;
  const EventFiles& events_;
};

}  // namespace softhca::uverbs
