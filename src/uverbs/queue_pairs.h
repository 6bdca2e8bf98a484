// QPs in the program's memory (kernel interface 4.7).
#pragma once

#include <rdma/mlx5-abi.h>

#include <span>

#include "uverbs/event_files.h"
#include "uverbs/method.h"
#include "uverbs/objects.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands of QPs.
class QueuePairCommands {
 public:
  QueuePairCommands(const OpenFile& file, const EventFiles& events)
      : file_(file),
        device_(file.device),
        memory_(file.memory),
        objects_(file.objects),
        user_(file.user),
        events_(events) {}

  static std::span<const Method<QueuePairCommands>> methods();
  static std::span<const WriteCommand<QueuePairCommands>> write_commands();

 private:
  Errno create_qp(Request& request);
  Errno find_objects(const Request& request, QueuePair& qp);
  Errno find_memory(QueuePair& qp, const mlx5_ib_create_qp& in);
  Errno destroy_qp(Request& request);
  Errno modify_qp(Request& request);
  Errno modify_qp_extended(Request& request);
  Errno query_qp(Request& request);

  const OpenFile& file_;
  Device& device_;
  const UserMemory& memory_;
  Objects& objects_;
  const UserContext& user_;
  const EventFiles& events_;
};

}  // namespace softhca::uverbs
