// Progress of a UMR whose list is too long for one turn.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "connectx/memory/key_list.h"
#include "rdma/types.h"

namespace softhca::connectx {

/// It is stored with the key, so the limit on translations also limits the memory of such UMRs,
/// however many QPs have one.
struct LongUpdate {
  LongUpdate(rdma::Qpn the_user, std::size_t the_size)
      : user(the_user), size(the_size), list(new(std::nothrow) std::byte[size]) {}

  rdma::Qpn user;
  std::size_t size;                   ///< bytes of the list
  std::unique_ptr<std::byte[]> list;  ///< null: out of memory
  std::size_t read = 0;               ///< bytes of the list read so far
  std::size_t written = 0;            ///< bytes of the list written to the key so far; not for KLM
  KeyList keys{};                     ///< KLM only: the whole list after the update
  KeyListReader reader{0, {}};        ///< decodes `keys`
  unsigned waited = 0;                ///< tries of other QPs since the user's last one
};

}  // namespace softhca::connectx
