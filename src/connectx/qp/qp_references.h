// The objects that a QP context names.
#pragma once

#include <tl/expected.hpp>

#include "connectx/base/limits.h"
#include "connectx/base/resources.h"
#include "connectx/command/command.h"
#include "connectx/event/completion_queue.h"
#include "connectx/qp/queue_pair.h"
#include "connectx/qp/shared_receive_queues.h"
#include "spec/connectx/qp.h"
#include "util/field.h"

namespace softhca::connectx {

/// Checks QP contexts against the objects of the device (mlx5 driver interface 7.4).
class QpReferences {
 public:
  QpReferences(const Limits& limits, Resources& resources, CompletionQueues& completion_queues,
               SharedReceiveQueues& shared_queues)
      : limits_(limits),
        resources_(resources),
        completion_queues_(completion_queues),
        shared_queues_(shared_queues) {}

  /// Checks the references and limits of a QP context, and acquires uses of the objects: PD,
  /// doorbell page, CQs of existing queues, SRQ, port, depth of READs.
  tl::expected<QueuePair::Uses, Refusal> use_references(util::View<spec::connectx::qpc> context);

 private:
  CommandResult use_pd_and_uar(util::View<spec::connectx::qpc> context, QueuePair::Uses& uses);
  CommandResult use_xrc_domain(util::View<spec::connectx::qpc> context, QueuePair::Uses& uses);
  CommandResult use_queues(util::View<spec::connectx::qpc> context, QueuePair::Uses& uses);

  const Limits& limits_;
  Resources& resources_;
  CompletionQueues& completion_queues_;
  SharedReceiveQueues& shared_queues_;
};

}  // namespace softhca::connectx
