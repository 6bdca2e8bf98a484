// Objects that are little more than a number: PDs, UARs, transport domains, XRC domains and Q
// counters (PRM 12.3). Also the number spaces of several kinds of queues.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/model.h"
#include "connectx/base/numbers.h"
#include "connectx/base/queue_numbers.h"
#include "connectx/base/uar_pages.h"
#include "connectx/base/user_contexts.h"
#include "hca/number_pool.h"
#include "rdma/counters.h"
#include "util/budget.h"
#include "util/id_allocator.h"

namespace softhca::connectx {

/// A set of Q counters. The transport counts in it, and Ethernet RQs count out_of_buffer in it.
using QCounters = rdma::QpCounters;

class Resources {
 public:
  /// First number of a queue. QPNs 0 and 1 are the special QPs on the wire. The next ones are
  /// skipped, because in a log such small numbers are easily mistaken for others.
  static constexpr std::uint32_t kFirstQueue = 0x40;
  /// Limit on the addresses of pages and keys that the device stores for memory keys and queues.
  /// Hardware has them in ICM. The limit suffices for 64 GiB of memory registered in 4 KiB pages.
  static constexpr std::uint64_t kMaxTranslations = 16u << 20;

  /// `shared_doorbells`: true if processes get doorbell pages from a separate range.
  Resources(const Limits& limits, const Model& model, bool shared_doorbells = false,
            const QueueNumbers& queue_numbers = {});

  /// The numbers of QPs, DCTs, SQs and RQs among `given`: those that a QP on the wire may have.
  static QueueNumbers queue_numbers(const Limits& limits, const QueueNumbers& given);
  /// Lowers the limits of queues to as many as the numbers suffice for.
  static Limits fit(Limits limits, const QueueNumbers& given);

  hca::NumberPool<Pd>& pds() { return pds_; }
  UarPages& uars() { return uars_; }
  hca::NumberPool<TransportDomain>& transport_domains() { return transport_domains_; }
  hca::NumberPool<Xrcd>& xrcds() { return xrcds_; }

  UserContexts& user_contexts() { return user_contexts_; }

  util::Budget& translations() { return translations_; }

  /// The number space of QPs, SQs and RQs. It begins at first_queue().
  util::IdAllocator& queue_numbers() { return queue_numbers_; }
  std::uint32_t first_queue() const { return first_queue_; }
  /// The number space of SRQs, XRC SRQs and RMPs, which drivers have in one table. It begins at
  /// first_srq().
  util::IdAllocator& srq_numbers() { return srq_numbers_; }
  std::uint32_t first_srq() const { return first_srq_; }

  /// Allocates a set of zero counters. Its number is never 0, which means "none" to drivers. Unset
  /// if all are in use.
  std::optional<CounterSetId> allocate_q_counter();
  /// Frees a set. False if it is not in use. Queues may still count in a freed set, because without
  /// rts2rts_qp_counters_set_id, drivers cannot detach a QP from its set.
  bool free_q_counter(CounterSetId id);
  /// Null if the set is not in use. The memory of a set stays valid until the next reset, also
  /// after the set is freed, so queues may still count in it. A freed number is reused when all
  /// others are in use. Such queues then count in the new set.
  QCounters* q_counter(CounterSetId id);
  /// Number of sets in use.
  std::size_t q_counter_count() const { return q_counter_ids_.count(); }
  /// One more than the highest number of a set.
  std::size_t q_counters_end() const { return q_counters_.size(); }

 private:
  /// Those of SRQs among `given`.
  static QueueNumbers srq_numbers(const Limits& limits, const QueueNumbers& given);

  util::Budget translations_{kMaxTranslations};
  UserContexts user_contexts_;
  hca::NumberPool<Pd> pds_;
  UarPages uars_;
  hca::NumberPool<TransportDomain> transport_domains_;
  hca::NumberPool<Xrcd> xrcds_;
  hca::NumberPool<CounterSetId> q_counter_ids_;
  std::uint32_t first_queue_;
  std::uint32_t first_srq_;
  util::IdAllocator queue_numbers_;
  util::IdAllocator srq_numbers_;
  std::vector<QCounters> q_counters_;  ///< by id
};

}  // namespace softhca::connectx
