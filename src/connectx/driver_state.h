// The state that a driver has brought the device to: its progress through start-up, capabilities,
// pages and objects. Command handlers see this, and not the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "connectx/base/health.h"
#include "connectx/base/limits.h"
#include "connectx/base/model.h"
#include "connectx/command/command_table.h"
#include "connectx/objects.h"
#include "connectx/queue/mapped_queue.h"
#include "connectx/queue/work_queue.h"
#include "pcie/dma_space.h"
#include "pcie/msix.h"
#include "util/clock.h"
#include "util/notes.h"
#include "util/work_budget.h"

namespace softhca::connectx {

class Capabilities;
class PageManager;
class SharedDoorbells;

class DriverState {
 public:
  /// The parts of the device that outlive a driver.
  struct Parts {
    const Model& model;
    const std::function<util::Time()>& clock;
    pcie::DmaSpace& dma;
    const pcie::Msix& msix;
    util::WorkBudget& work;
    util::Notes& notes;
    Health& health;
  };
  /// Makes the objects of a driver with these limits, and connects the device to them.
  using MakeObjects = std::function<std::unique_ptr<Objects>(const Limits& limits)>;

  /// There are no objects before the first reset(). `limits`: those of the device.
  DriverState(const Parts& parts, const Limits& limits, MakeObjects make_objects);
  ~DriverState();

  const Model& model() const { return parts_.model; }
  util::Time now() const { return parts_.clock(); }
  util::Notes& notes() { return parts_.notes; }
  std::uint16_t msix_vectors() const { return parts_.msix.layout().vectors; }
  /// Null if all doorbells are messages.
  SharedDoorbells* shared_doorbells() { return shared_doorbells_; }
  void set_shared_doorbells(SharedDoorbells& doorbells) { shared_doorbells_ = &doorbells; }

  // Start-up (PRM 8.2) -------------------------------------------------------------------------

  HcaState state() const { return state_; }
  void set_state(HcaState state) { state_ = state; }
  /// The interface step that SET_ISSI chose (PRM 5.4).
  std::uint16_t issi() const { return issi_; }
  void set_issi(std::uint16_t issi) { issi_ = issi; }
  Capabilities& capabilities() { return *capabilities_; }
  const Capabilities& capabilities() const { return *capabilities_; }
  PageManager& pages() { return *pages_; }
  /// The limits that commands enforce.
  const Limits& limits() const;

  // Objects, in the order in which a driver uses them. They live until they are dropped. ----------

  const Objects& objects() const { return *objects_; }
  Resources& resources() { return *objects_->resources; }
  UserMemories& user_memories() { return *objects_->user_memories; }
  /// Maps queues in host memory.
  QueueMapper queue_mapper();
  WorkQueueMaker work_queue_maker();
  MemoryKeys& memory_keys() { return *objects_->memory_keys; }
  EventQueues& event_queues() { return *objects_->event_queues; }
  CompletionQueues& completion_queues() { return *objects_->completion_queues; }
  NetworkPort& network_port() { return *objects_->network_port; }
  Vport& vport() { return *objects_->vport; }
  PortRegisters& port_registers() { return *objects_->port_registers; }
  Rdma& rdma() { return *objects_->rdma; }
  Ethernet& ethernet() { return *objects_->ethernet; }

  // The end of a driver ------------------------------------------------------------------------

  /// Drops every object that a driver created: TEARDOWN_HCA, fast teardown. Pages and capabilities
  /// stay. Dropped objects do nothing more, and the device has new ones. If there were many, they
  /// are destroyed over several turns.
  void drop_objects();
  /// Drops all objects, pages and settings of a driver: DISABLE_HCA, a new command queue.
  void forget();
  /// The state after a reset of the function.
  void reset();
  /// Destroys dropped objects until the work budget is spent. True if all are gone. No command is
  /// executed before that, so a driver that drops objects repeatedly cannot accumulate them.
  bool clear_remains();
  /// True if there are dropped objects. `initializing` is then set.
  bool has_remains() const { return remains_ != nullptr; }

 private:
  Parts parts_;
  MakeObjects make_objects_;
  SharedDoorbells* shared_doorbells_ = nullptr;
  HcaState state_ = HcaState::kDisabled;
  std::uint16_t issi_ = 0;
  std::unique_ptr<Capabilities> capabilities_;
  std::unique_ptr<PageManager> pages_;
  std::unique_ptr<Objects> objects_;
  /// Dropped objects that are not destroyed yet.
  std::unique_ptr<Objects> remains_;
};

}  // namespace softhca::connectx
