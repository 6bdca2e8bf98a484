// An HCA for tests: queues that a test fills, and completions that it reads.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "rdma/hca.h"
#include "rdma/queue_pair.h"

namespace softhca::rdma::testing {

class TestHca final : public Hca {
 public:
  struct Send {
    Qpn qpn;
    std::uint32_t cookie;
    SendOpcode opcode;
    WorkStatus status;
    bool signaled;
    std::uint32_t byte_count;
    Reason reason;
  };
  struct Receive {
    Qpn qpn;
    ReceiveCompletion completion;
  };
  struct Event {
    Qpn qpn;
    QpEvent event;
    Reason reason;
  };

  Fetch fetch_send(QueuePair& qp, SendRequest& request) override {
    if (send_memory_gone) return Fetch::kUnreadable;
    if (endless_sends) {
      request.cookie = ++fetched;
      if (fetched > 100'000) return Fetch::kNothing;  // so that a test fails and does not hang
      return Fetch::kRequest;
    }
    if (auto& left = sends_to_flush[qp.qpn()]; left != 0) {
      --left;
      const auto fetch = take(sends_posted[qp.qpn()], request, malformed_send);
      request.stale = true;
      return fetch;
    }
    return take(sends_posted[qp.qpn()], request, malformed_send);
  }
  void restart_send(QueuePair& qp) override {
    sends_to_flush[qp.qpn()] = sends_posted[qp.qpn()].size();
  }
  Fetch fetch_receive(QueuePair& qp, ReceiveRequest& request) override {
    auto& queue = qp.options().uses_srq ? srq : receives_posted[qp.qpn()];
    return take(queue, request, malformed_receive);
  }
  WorkStatus execute_local(QueuePair&, const SendRequest& request) override {
    executed.push_back(request.cookie);
    return local_status;
  }
  void complete_send(QueuePair& qp, const SendCompletion& c) override {
    if (on_complete_send) on_complete_send(c);
    if (!keep) return void(++completed);
    sends.push_back({qp.qpn(), c.cookie, c.opcode, c.status, c.signaled, c.byte_count, c.reason});
  }
  void complete_receive(QueuePair& qp, const ReceiveCompletion& c) override {
    if (!keep) return void(++completed);
    receives.push_back({qp.qpn(), c});
  }
  void handle_event(QueuePair& qp, QpEvent event, Reason reason) override {
    events.push_back({qp.qpn(), event, reason});
  }

  /// How often `event` was raised.
  std::size_t count(QpEvent event) const {
    std::size_t n = 0;
    for (const auto& e : events) n += e.event == event;
    return n;
  }
  /// Statuses of all completed sends, in order.
  std::vector<WorkStatus> send_statuses() const {
    std::vector<WorkStatus> all;
    for (const auto& s : sends) all.push_back(s.status);
    return all;
  }
  std::vector<WorkStatus> receive_statuses() const {
    std::vector<WorkStatus> all;
    for (const auto& r : receives) all.push_back(r.completion.status);
    return all;
  }

  std::map<Qpn, std::deque<SendRequest>> sends_posted;
  std::map<Qpn, std::size_t> sends_to_flush;  ///< of sends_posted, after restart_send()
  std::map<Qpn, std::deque<ReceiveRequest>> receives_posted;
  std::deque<ReceiveRequest> srq;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::vector<Event> events;
  std::vector<std::uint32_t> executed;
  WorkStatus local_status = WorkStatus::kSuccess;
  bool send_memory_gone = false;
  bool malformed_send = false;
  bool endless_sends = false;  ///< as if another processor posted as fast as it is fetched
  std::uint32_t fetched = 0;
  bool malformed_receive = false;
  std::function<void(const SendCompletion&)> on_complete_send;
  bool keep = true;  ///< false: completions are only counted
  std::uint64_t completed = 0;

 private:
  template <class Request>
  static Fetch take(std::deque<Request>& queue, Request& request, bool malformed) {
    if (queue.empty()) return Fetch::kNothing;
    request = queue.front();
    queue.pop_front();
    return malformed ? Fetch::kMalformed : Fetch::kRequest;
  }
};

}  // namespace softhca::rdma::testing
