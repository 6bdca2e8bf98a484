// The plain numbers that other objects refer to: PDs, UARs, transport domains, XRC domains and Q
// counters (PRM 12.3), and the number spaces that several kinds of queues share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/model.h"
#include "connectx/base/numbers.h"
#include "connectx/base/uar_pages.h"
#include "connectx/base/user_contexts.h"
#include "hca/number_pool.h"
#include "rdma/counters.h"
#include "util/budget.h"
#include "util/id_allocator.h"

namespace softhca::connectx {

/// A set of Q counters: the transport's, and Ethernet RQs count out_of_buffer in it.
using QCounters = rdma::QpCounters;

class Resources {
 public:
  /// QPNs 0 and 1 mean the special QPs on the wire; the numbers after them are left out because
  /// they are easily taken for something else in a log.
  static constexpr std::uint32_t kFirstQueue = 0x40;
  /// Page and key addresses that the device remembers for its driver: those of memory keys and
  /// queues. Hardware keeps them in ICM. Enough for 64 GiB of memory registered in 4 KiB pages.
  static constexpr std::uint64_t kMaxTranslations = 16u << 20;

  /// `shared_doorbells`: the doorbell pages of processes are apart.
  Resources(const Limits& limits, const Model& model, bool shared_doorbells = false);

  /// One more than the highest number that a QP, SQ or RQ can have.
  static std::uint32_t queue_numbers_end(const Limits& limits) {
    return kFirstQueue + queue_numbers(limits);
  }

  hca::NumberPool<Pd>& pds() { return pds_; }
  UarPages& uars() { return uars_; }
  hca::NumberPool<TransportDomain>& transport_domains() { return transport_domains_; }
  hca::NumberPool<Xrcd>& xrcds() { return xrcds_; }

  UserContexts& user_contexts() { return user_contexts_; }

  util::Budget& translations() { return translations_; }

  /// QPNs, SQNs and RQNs are numbers of one space.
  util::IdAllocator& queue_numbers() { return queue_numbers_; }
  /// So are those of SRQs, XRC SRQs and RMPs: drivers keep them in one table.
  util::IdAllocator& srq_numbers() { return srq_numbers_; }

  /// A new set, all zero. Never 0, which means "none" to drivers. Nothing if all are in use.
  std::optional<CounterSetId> allocate_q_counter();
  /// False if the set is not in use. Queues may still count in it: without
  /// rts2rts_qp_counters_set_id drivers cannot take a QP from its set before they free the set.
  bool free_q_counter(CounterSetId id);
  /// Null if there is none. The set stays where it is until the next reset, also after it was
  /// freed, so that queues which still count in it do no harm. Its number becomes another's when
  /// all others are in use: what counts in it then counts for that one.
  QCounters* q_counter(CounterSetId id);
  /// The sets in use.
  std::size_t q_counter_count() const { return q_counter_ids_.count(); }
  /// Above all their numbers.
  std::size_t q_counters_end() const { return q_counters_.size(); }

 private:
  static std::uint32_t queue_numbers(const Limits& limits);

  util::Budget translations_{kMaxTranslations};
  UserContexts user_contexts_;
  hca::NumberPool<Pd> pds_;
  UarPages uars_;
  hca::NumberPool<TransportDomain> transport_domains_;
  hca::NumberPool<Xrcd> xrcds_;
  hca::NumberPool<CounterSetId> q_counter_ids_;
  util::IdAllocator queue_numbers_;
  util::IdAllocator srq_numbers_;
  std::vector<QCounters> q_counters_;  ///< by id
};

}  // namespace softhca::connectx
