// Progress of a UMR whose list is too long for one turn.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "connectx/memory/key_list.h"
#include "connectx/memory/umr.h"
#include "rdma/memory_key.h"
#include "rdma/types.h"
#include "rdma/work_queues.h"
#include "spec/connectx/mkey.h"

namespace softhca::connectx {

struct KeyRecord;

/// It is stored with the key, so the limit on translations also limits the memory of such UMRs,
/// however many QPs have one.
struct LongUpdate {
  LongUpdate(rdma::Qpn the_qpn, std::size_t the_size)
      : qpn(the_qpn), size(the_size), list(new(std::nothrow) std::byte[size]) {}

  /// Does the next step of the UMR: reads a part of the list, or writes one to the key.
  rdma::LocalOutcome go_on(const Umr& umr, const UmrUser& user, KeyRecord& record,
                           rdma::MemoryKey& key, rdma::KeyTable& table,
                           spec::connectx::mkey_access_mode mode);

  rdma::Qpn qpn;                      ///< the QP that the UMR was posted to
  std::size_t size;                   ///< bytes of the list
  std::unique_ptr<std::byte[]> list;  ///< null: out of memory
  std::size_t read = 0;               ///< bytes of the list read so far
  std::size_t written = 0;            ///< bytes of the list written to the key so far; not for KLM
  KeyList keys{};                     ///< KLM only: the whole list after the update
  KeyListReader reader{0, {}};        ///< decodes `keys`
  unsigned waited = 0;                ///< tries of other QPs since the user's last one

 private:
  /// Reads the next part of the list. The whole list is read before any of it is applied, so that a
  /// list that cannot be read changes nothing.
  rdma::LocalOutcome read_some(const Umr& umr, const UmrUser& user, rdma::KeyTable& table);
};

}  // namespace softhca::connectx
