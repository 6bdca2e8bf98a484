// The RDMA extended transport header: address, key and length of an RDMA WRITE or READ (IBTA
// 9.3.3).
#pragma once

#include "spec/infiniband/transport.h"
#include "wire/ids.h"

namespace softhca::wire {

using RethLayout = spec::infiniband::reth;

struct Reth {
  std::uint64_t virtual_address = 0;
  RKey rkey;
  std::uint32_t dma_length = 0;

  static Reth parse(util::View<RethLayout> view) {
    return {view.get(RethLayout::virtual_address), RKey(view.get(RethLayout::r_key)),
            view.get(RethLayout::dma_length)};
  }
  void emit(util::MutableView<RethLayout> out) const {
    out.set(RethLayout::virtual_address, virtual_address);
    out.set(RethLayout::r_key, rkey.value());
    out.set(RethLayout::dma_length, dma_length);
  }
  friend bool operator==(const Reth&, const Reth&) = default;
};

}  // namespace softhca::wire
