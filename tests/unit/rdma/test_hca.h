// A test HCA. The test fills its queues and reads its completions.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "rdma/queue_pair.h"
#include "rdma/work_queues.h"

namespace softhca::rdma::test {

class TestHca {
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

  /// Creates the queues of a new QP.
  WorkQueues& queues_of(Qpn qpn, bool uses_srq) {
    auto& queues = queues_[qpn];
    queues = std::make_unique<Queues>(*this, qpn, uses_srq);
    return *queues;
  }

  /// Number of times that `event` was raised.
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
  std::map<Qpn, std::size_t> sends_to_flush;  ///< how many of sends_posted, after restart_send()
  std::map<Qpn, std::deque<ReceiveRequest>> receives_posted;
  std::deque<ReceiveRequest> srq;
  std::map<XrcSrqn, std::deque<ReceiveRequest>> xrc_srqs;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::vector<Event> events;
  std::vector<SignatureError> signature_errors;
  std::vector<std::uint32_t> executed;
  WorkStatus local_status = WorkStatus::kSuccess;
  bool send_memory_gone = false;
  bool malformed_send = false;
  bool endless_sends = false;  ///< simulates another processor that posts as fast as the QP fetches
  std::uint32_t fetched = 0;
  bool malformed_receive = false;
  std::function<void(const SendCompletion&)> on_complete_send;
  FaultAnswer fault_answer = FaultAnswer::kOpened;
  std::vector<PageFault> faults;
  std::size_t open_faults = 0;
  bool gives_pieces = true;           ///< enables WorkQueues::fetch_receive_fast
  bool gives_short_datagrams = true;  ///< enables WorkQueues::fetch_datagram_fast
  unsigned short_datagrams = 0;       ///< datagrams fetched that way
  unsigned pieces = 0;                ///< receives fetched by fetch_receive_fast()
  bool keep = true;                   ///< false: completions are only counted
  std::uint64_t completed = 0;

 private:
  class Queues final : public WorkQueues {
   public:
    Queues(TestHca& hca, Qpn qpn, bool uses_srq) : hca_(hca), qpn_(qpn), uses_srq_(uses_srq) {}

    Fetch fetch_send(SendRequest& request) override {
      if (hca_.send_memory_gone) return Fetch::kUnreadable;
      if (hca_.endless_sends) {
        request.cookie = ++hca_.fetched;
        if (hca_.fetched > 100'000) return Fetch::kNothing;  // makes a test fail instead of hang
        return Fetch::kRequest;
      }
      const auto fetch = take(hca_.sends_posted[qpn_], request, hca_.malformed_send);
      if (auto& left = hca_.sends_to_flush[qpn_]; left != 0) {
        --left;
        request.stale = true;
      }
      return fetch;
    }
    Fetch fetch_datagram_fast(std::uint64_t destination, std::uint32_t bytes_max,
                              ShortDatagram& datagram) override {
      auto& posted = hca_.sends_posted[qpn_];
      if (!hca_.gives_short_datagrams || hca_.malformed_send || posted.empty()) {
        return Fetch::kNothing;
      }
      const auto& next = posted.front();
      const bool is_send =
          next.opcode == SendOpcode::kSend || next.opcode == SendOpcode::kSendWithImmediate;
      if (!is_send || next.ud.number != destination || next.sges.size() != 1 ||
          hca_.sends_to_flush[qpn_] != 0 || next.sges[0].length == 0 ||
          next.sges[0].length > bytes_max) {
        return Fetch::kNothing;
      }
      datagram = {.cookie = next.cookie,
                  .opcode = next.opcode,
                  .signaled = next.signaled,
                  .solicited = next.solicited,
                  .immediate = next.immediate,
                  .length = next.sges[0].length,
                  .inline_data = nullptr,
                  .address = next.sges[0].address,
                  .lkey = next.sges[0].lkey};
      posted.pop_front();
      ++hca_.short_datagrams;
      return posted.empty() ? Fetch::kLastRequest : Fetch::kRequest;
    }
    void restart_send() override { hca_.sends_to_flush[qpn_] = hca_.sends_posted[qpn_].size(); }
    Fetch fetch_receive(ReceiveRequest& request, XrcSrqn srqn) override {
      if (srqn != XrcSrqn{}) {
        return take(hca_.xrc_srqs[srqn], request, hca_.malformed_receive);
      }
      return take(uses_srq_ ? hca_.srq : hca_.receives_posted[qpn_], request,
                  hca_.malformed_receive);
    }
    bool fetch_receive_fast(ReceivePiece& piece) override {
      auto& posted = hca_.receives_posted[qpn_];
      if (!hca_.gives_pieces || uses_srq_ || hca_.malformed_receive || posted.empty()) return false;
      const auto& next = posted.front();
      if (next.sges.size() != 1 || next.pd) return false;
      piece = {next.cookie, next.sges[0]};
      posted.pop_front();
      ++hca_.pieces;
      return true;
    }
    LocalOutcome execute_local(const SendRequest& request, bool /*again*/) override {
      hca_.executed.push_back(request.cookie);
      return {hca_.local_status, Reason::kLocalOperationRefused};
    }
    void complete_send(const SendCompletion& c) override {
      if (hca_.on_complete_send) hca_.on_complete_send(c);
      if (!hca_.keep) return void(++hca_.completed);
      hca_.sends.push_back(
          {qpn_, c.cookie, c.opcode, c.status, c.signaled, c.byte_count, c.reason});
    }
    void complete_receive(const ReceiveCompletion& c) override {
      if (!hca_.keep) return void(++hca_.completed);
      hca_.receives.push_back({qpn_, c});
    }
    void handle_event(QpEvent event, Reason reason) override {
      hca_.events.push_back({qpn_, event, reason});
    }
    void handle_signature_error(const SignatureError& error, bool, XrcSrqn) override {
      hca_.signature_errors.push_back(error);
    }
    FaultAnswer open_fault(const PageFault& fault) override {
      hca_.faults.push_back(fault);
      hca_.open_faults += hca_.fault_answer == FaultAnswer::kOpened;
      return hca_.fault_answer;
    }
    void close_fault() override { --hca_.open_faults; }

   private:
    TestHca& hca_;
    Qpn qpn_;
    bool uses_srq_;
  };

  template <class Request>
  static Fetch take(std::deque<Request>& queue, Request& request, bool malformed) {
    if (queue.empty()) return Fetch::kNothing;
    request = queue.front();
    queue.pop_front();
    return malformed ? Fetch::kMalformed : Fetch::kRequest;
  }

  std::map<Qpn, std::unique_ptr<Queues>> queues_;
};

}  // namespace softhca::rdma::test
