// A UMR whose list is too long for one turn: how far it has come.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "connectx/memory/key_list.h"
#include "rdma/types.h"

namespace softhca::connectx {

/// It stands with the key, whose translations are counted: so is what such UMRs can take, however
/// many QPs have one.
struct LongUpdate {
  LongUpdate(rdma::Qpn the_user, std::size_t the_size)
      : user(the_user), size(the_size), list(new(std::nothrow) std::byte[size]) {}

  rdma::Qpn user;
  std::size_t size;                   ///< bytes of the list
  std::unique_ptr<std::byte[]> list;  ///< null: there was no memory
  std::size_t read = 0;               ///< bytes of it
  std::size_t written = 0;            ///< bytes of it, to the key; unless it is of keys
  KeyList keys{};                     ///< if it is: all of them, as they are to be
  KeyListReader reader{0, {}};        ///< of them
  unsigned waited = 0;                ///< how often others have asked since its user came
};

}  // namespace softhca::connectx
