// The objects between INIT_HCA and CLOSE_HCA, and those that are no longer used. A guest has up to
// 2^16 QPs, which take too long to destroy for a turn, so they are destroyed over several. The same
// holds for making and freeing large ICM caches.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "jingzhao/command.h"
#include "jingzhao/completion_queues.h"
#include "jingzhao/event_queues.h"
#include "jingzhao/memory_keys.h"
#include "jingzhao/queue_pairs.h"
#include "jingzhao/unloaded_regions.h"
#include "util/work_budget.h"

namespace softhca::jingzhao {

/// Positions and sizes of the tables, from INIT_HCA.
struct Tables {
  std::uint64_t qpc_base = 0;
  std::uint64_t cqc_base = 0;
  std::uint64_t eqc_base = 0;
  std::uint64_t mpt_base = 0;
  std::uint64_t mtt_base = 0;
  unsigned log_qps = 0;
  unsigned log_cqs = 0;
  unsigned log_eqs = 0;
  unsigned log_mpts = 0;
};

/// Each refers to those above it and is destroyed before them.
struct Objects {
  struct Parts {
    pcie::DmaSpace& dma;
    Icm& contexts;
    Icm& memory;
    pcie::Interrupts& interrupts;
    const hca::FaultHook& faults;
    fabric::Port& port;
    const InfinibandPort* infiniband;  ///< null: Ethernet
    util::Notes& notes;
    util::Trace* trace;  ///< null: none
    UnloadedRegions& unloaded;
    std::uint32_t cache;  ///< capacity of the ICM cache of each table
    const ProfileRules& rules;
  };

  /// The ICM caches are not made yet: see make_caches().
  Objects(const Parts& parts, const Tables& tables);

  const Numbering numbering;
  std::unique_ptr<MemoryKeys> memory_keys;
  std::unique_ptr<EventQueues> event_queues;
  std::unique_ptr<CompletionQueues> completion_queues;
  std::unique_ptr<QueuePairs> queue_pairs;

  /// Makes the ICM caches until `work` is spent. True if all are made, as they must be before the
  /// first use of an object.
  bool make_caches(util::WorkBudget& work);
  /// Frees them until `work` is spent. True if none is left. No object must be used afterwards.
  bool free_caches(util::WorkBudget& work);
};

/// Objects of a closed HCA, and unloaded regions.
class Remains {
 public:
  /// Adds the objects of an HCA, which do nothing more. @pre there are no other objects: INIT_HCA
  /// has waited for that
  void add(std::unique_ptr<Objects> objects) {
    objects_ = std::move(objects);
    any_ = objects_ != nullptr || any_;
  }
  UnloadedRegions& regions() { return regions_; }
  /// Destroys until `work` is spent.
  void clear(util::WorkBudget& work);
  bool empty() const { return !any_; }
  /// True if a command may run now. A command may load as many regions as there are here, and after
  /// INIT_HCA there may be as many objects. So the first waits for the regions, the second for the
  /// objects, too: this bounds the memory.
  bool may_run(Opcode op) const;

 private:
  bool dismantle(util::WorkBudget& work);

  bool any_ = false;  ///< for a device's run: one look instead of two
  UnloadedRegions regions_{any_};
  std::unique_ptr<Objects> objects_;
};

}  // namespace softhca::jingzhao
