// Many connections between the two devices of a Pair, each like the pair's own.
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
  /// `count` connections from pair.a() to pair.b(). They use the CQs of these two.
  Crowd(Pair& pair, std::size_t count);

  std::size_t size() const { return links_.size(); }
  /// An RDMA WRITE from a to b on one of the connections, with inline data.
  void write_inline(std::size_t link, std::span<const std::byte> bytes, bool signaled);

  /// Send queue entries of a connection.
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
