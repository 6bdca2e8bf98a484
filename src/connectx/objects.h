// All that a driver makes in a device, and what serves it. It goes as a whole with the driver (FLR,
// TEARDOWN_HCA, DISABLE_HCA, a new command queue), and in pieces: hundreds of thousands of objects
// are more work than a turn has time for.
#pragma once

#include <memory>

#include "util/work_budget.h"

namespace softhca::connectx {

class BlueFlame;
class CompletionQueues;
class Ethernet;
class EventQueues;
class MemoryKeys;
class NetworkPort;
class PortRegisters;
class Rdma;
class Resources;
class UserMemories;
class Vport;

/// In the order of their uses: those that use others go first, which are the last here.
struct Objects {
  Objects();
  ~Objects();
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;

  /// Destroys objects, until `work` is spent. True: what is left takes no time worth counting.
  /// Nothing but this and the destructor is to be called from then on.
  bool dismantle(util::WorkBudget& work);

  std::unique_ptr<Resources> resources;
  std::unique_ptr<UserMemories> user_memories;
  std::unique_ptr<EventQueues> event_queues;
  std::unique_ptr<CompletionQueues> completion_queues;
  std::unique_ptr<MemoryKeys> memory_keys;
  std::unique_ptr<NetworkPort> network_port;
  std::unique_ptr<Vport> vport;
  std::unique_ptr<PortRegisters> port_registers;
  std::unique_ptr<BlueFlame> blue_flame;
  std::unique_ptr<Rdma> rdma;
  std::unique_ptr<Ethernet> ethernet;
};

}  // namespace softhca::connectx
