// Many connections between the two devices of a Pair, each like that of the pair itself.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "driver/connectx/queue_pair.h"
#include "pair.h"

namespace softhca::bench {

class Crowd {
 public:
  /// `count` connections from pair.a() to pair.b(), which use the CQs of these.
  Crowd(Pair& pair, std::size_t count);

  std::size_t size() const { return links_.size(); }
  /// An RDMA WRITE from a to b with the bytes in the request, on one of the connections.
  void write_inline(std::size_t link, std::span<const std::byte> bytes, bool signaled);

  /// Requests that a connection has room for.
  static constexpr unsigned kQueueDepth = 32;

 private:
  using Qp = std::unique_ptr<driver::connectx::QueuePair>;
  struct Link {
    Qp a;
    Qp b;
  };

  Pair& pair_;
  std::vector<Link> links_;
};

}  // namespace softhca::bench
