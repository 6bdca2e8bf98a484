// The lists of QPs with pending work. They are intrusive: queueing allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::rdma {

class QueuePair;

/// The lists that a QP can be in, one or both.
enum class Queue : std::uint8_t {
  kReady,       ///< has pending work
  kUnreleased,  ///< has completions that wait until the fabric has read their payload
};
inline constexpr std::size_t kQueues = 2;

/// A QP's links in a QpList.
struct QpLink {
  QueuePair* next = nullptr;
  QueuePair* previous = nullptr;
  bool queued = false;
};

/// A FIFO of QPs, each at most once.
class QpList {
 public:
  explicit QpList(Queue queue) : queue_(queue) {}
  bool empty() const { return first_ == nullptr; }
  /// Null if the list is empty.
  QueuePair* front() const { return first_; }
  /// No effect if the QP is in the list already.
  void push_back(QueuePair& qp);
  /// Null if the list is empty.
  QueuePair* pop_front();
  void remove(QueuePair& qp);

 private:
  QpLink& link(QueuePair& qp) const;

  const Queue queue_;
  QueuePair* first_ = nullptr;
  QueuePair* last_ = nullptr;
};

}  // namespace softhca::rdma
