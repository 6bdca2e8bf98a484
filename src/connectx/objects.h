// All objects that a driver creates in a device, and the parts that serve them. They are dropped
// together when the driver leaves (FLR, TEARDOWN_HCA, DISABLE_HCA, a new command queue). They are
// destroyed over several turns, because hundreds of thousands of objects are too much work for one.
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

/// Each part is declared after those that it uses, so that it is destroyed before them.
struct Objects {
  Objects();
  ~Objects();
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;

  /// Destroys objects until `work` is spent. True if only the destructor is left to call, whose
  /// cost is small. After the first call, call only this and the destructor.
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
