// The commands of an open device file: one class for each kind of object.
#pragma once

#include <optional>
#include <span>

#include "uverbs/address_handles.h"
#include "uverbs/completion_queues.h"
#include "uverbs/context_options.h"
#include "uverbs/device_commands.h"
#include "uverbs/devx_channels.h"
#include "uverbs/devx_memory.h"
#include "uverbs/devx_methods.h"
#include "uverbs/doorbell_pages.h"
#include "uverbs/event_files.h"
#include "uverbs/flow_commands.h"
#include "uverbs/flow_counters.h"
#include "uverbs/memory_regions.h"
#include "uverbs/memory_windows.h"
#include "uverbs/method.h"
#include "uverbs/multicast.h"
#include "uverbs/open_file.h"
#include "uverbs/port_commands.h"
#include "uverbs/protection_domains.h"
#include "uverbs/queue_pairs.h"
#include "uverbs/receive_queues.h"
#include "uverbs/request.h"
#include "uverbs/shared_queues.h"
#include "uverbs/xrc_commands.h"

namespace softhca::uverbs {

/// All commands by their methods.
class Commands {
 public:
  Commands(const OpenFile& file, EventFiles& events, DevxChannels& channels,
           const ContextOptions& options)
      : user_(file.user),
        events_(events),
        channels_(channels),
        of_device_(file, options),
        of_port_(file),
        of_domains_(file),
        of_handles_(file),
        of_groups_(file),
        of_regions_(file),
        of_windows_(file),
        of_pages_(file),
        of_completions_(file, options.made_cq),
        of_shared_queues_(file),
        of_xrc_(file, options.copy),
        of_pairs_(file),
        of_receive_queues_(file),
        of_counters_(file),
        of_flows_(file),
        of_devx_(file, channels),
        of_umems_(file) {}

  static std::span<const Method<Commands>> methods();

  /// Serves a request. Nothing: there is no such method.
  std::optional<Errno> serve(Request& request);

 private:
  /// Serves a command in the form of write().
  Errno invoke_write(Request& request);
  /// Calls `serve_by` for each class of commands until one has served the request.
  template <class Serve>
  std::optional<Errno> find(Serve&& serve_by);

  const UserContext& user_;
  EventFiles& events_;
  DevxChannels& channels_;
  DeviceCommands of_device_;
  PortCommands of_port_;
  ProtectionDomainCommands of_domains_;
  AddressHandleCommands of_handles_;
  MulticastCommands of_groups_;
  MemoryRegionCommands of_regions_;
  MemoryWindowCommands of_windows_;
  DoorbellPageCommands of_pages_;
  CompletionQueueCommands of_completions_;
  SharedQueueCommands of_shared_queues_;
  XrcCommands of_xrc_;
  QueuePairCommands of_pairs_;
  ReceiveQueueCommands of_receive_queues_;
  CounterCommands of_counters_;
  FlowCommands of_flows_;
  DevxCommands of_devx_;
  DevxMemoryCommands of_umems_;
};

}  // namespace softhca::uverbs
