// The lists of QPs that have something to do. They are intrusive: queueing allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::rdma {

class QueuePair;

/// The lists that a QP can be in, in one of them or in both.
enum class Queue : std::uint8_t {
  kReady,       ///< has something to do
  kUnreleased,  ///< has completions that wait for the fabric
};
inline constexpr std::size_t kQueues = 2;

/// A QP's place in a QpList.
struct QpLink {
  QueuePair* next = nullptr;
  QueuePair* previous = nullptr;
  bool queued = false;
};

/// QPs, each once, first come first served.
class QpList {
 public:
  explicit QpList(Queue queue) : queue_(queue) {}
  bool empty() const { return first_ == nullptr; }
  /// Null if the list is empty.
  QueuePair* front() const { return first_; }
  /// Does nothing if the QP is in the list.
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
