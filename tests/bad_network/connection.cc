#include "connection.h"

namespace softhca::bad_network {
namespace {

using namespace std::chrono_literals;
using driver::test::must;
using driver::verbs::QpAttributes;
using driver::verbs::QpState;

/// 4.096 us * 2^14 = 67 ms, and seven retries: half a second without progress breaks a connection.
constexpr std::uint8_t kTimeout = 14, kRetries = 7;
/// Longer than any frame waits on a cable, so that none of before reaches the next connection.
constexpr auto kRest = 2s;
/// No fault lasts so long.
constexpr auto kPatience = 15s;
constexpr std::uint32_t kPsnMask = 0xffffff;

}  // namespace

Connection::Connection(Fleet& fleet, Site& low, Site& high, Random& random)
    : fleet_(fleet),
      random_(random),
      sites_{&low, &high},
      flows_{Flow(low, high), Flow(high, low)},
      qps_{make_qp(low), make_qp(high)} {
  connect();
}

driver::verbs::QueuePair Connection::make_qp(Site& site) {
  return must(
      site.pd.create_qp({.send_cq = site.sends,
                         .receive_cq = site.receives,
                         .capacity = {.send_requests = kWindow, .receive_requests = kReceives}}));
}

/// RESET to RTS with random PSNs, near their wrap half of the time. Half of the connections allow
/// congestion marks.
void Connection::connect() {
  for (auto& psn : psns_) {
    const auto random = random_();
    psn = static_cast<std::uint32_t>((random & 1) != 0 ? kPsnMask - random % 64 : random >> 1) &
          kPsnMask;
  }
  const auto mtu = 256u << below(random_, 3);
  const auto traffic_class = static_cast<std::uint8_t>(2 * below(random_, 2));
  for (const unsigned end : {0, 1}) to_ready(end, mtu, traffic_class);
  for (const unsigned end : {0, 1}) {
    receives_[end] = {};
    fill_receives(end);
  }
  state_ = State::kUp;
}

void Connection::to_ready(unsigned end, unsigned mtu, std::uint8_t traffic_class) {
  auto& qp = qps_[end];
  const auto& peer = qps_[1 - end];
  must(qp.modify({.state = QpState::kInit,
                  .access = driver::RemoteAccess{},
                  .pkey_index = std::uint16_t{0},
                  .port = std::uint8_t{1}}));
  must(qp.modify({.state = QpState::kRtr,
                  .path = driver::verbs::Path{.gid = peer.gid(),
                                              .mac = peer.device().mac,
                                              .traffic_class = traffic_class},
                  .path_mtu = mtu,
                  .receive_psn = psns_[1 - end],
                  .max_peer_reads = 8u,
                  .min_rnr_timer = std::uint8_t{12},
                  .destination_qpn = peer.number()}));
  must(qp.modify({.state = QpState::kRts,
                  .timeout = kTimeout,
                  .retry_count = kRetries,
                  .rnr_retry = std::uint8_t{7},
                  .send_psn = psns_[end],
                  .max_reads = 8u}));
}

void Connection::post(unsigned host, unsigned count, Random& random) {
  if (state_ != State::kUp) return;
  auto& flow = flow_from(host);
  for (; count != 0 && !flow.is_full(); --count) {
    flow.post(qps_[end_of(host)], random, fleet_.now());
  }
}

void Connection::complete(unsigned host, const driver::Completion& done) {
  const bool was_up = state_ == State::kUp;
  if (flow_from(host).complete(done) || !was_up) return;
  promise(done.status == driver::WorkStatus::kTransportRetryExceeded,
          "host {}: the first error of a connection is {}", host, driver::to_string(done.status));
  state_ = State::kBroken;
  broken_at_ = fleet_.now();
  ++breaks_;
}

void Connection::receive(unsigned host, const driver::Completion& done) {
  const auto end = end_of(host);
  auto& receives = receives_[end];
  constexpr auto kIdMask = (std::uint64_t{1} << 56) - 1;
  promise((done.id & kIdMask) == receives.done && receives.done != receives.posted,
          "host {}: a completion of receive {}, and that of {} is the next of {}", host,
          done.id & kIdMask, receives.done, receives.posted);
  const auto slot = static_cast<unsigned>(receives.done++ % kReceives);
  if (done.status != driver::WorkStatus::kSuccess) {
    promise(state_ != State::kUp && done.status == driver::WorkStatus::kFlushed,
            "host {}: a receive ends with {}", host, driver::to_string(done.status));
    return;
  }
  flows_[1 - end].receive(done, slot);
  // Sometimes the program is slow, and the peer meets RNR NAKs.
  receives.starved = receives.starved || below(random_, 32) == 0;
  if (!receives.starved && state_ == State::kUp) fill_receives(end);
}

void Connection::fill_receives() {
  if (state_ != State::kUp) return;
  for (const unsigned end : {0, 1}) fill_receives(end);
}

void Connection::fill_receives(unsigned end) {
  auto& receives = receives_[end];
  auto& site = *sites_[end];
  const auto peer = sites_[1 - end]->host;
  receives.starved = false;
  for (; receives.posted != receives.done + kReceives; ++receives.posted) {
    const auto slot = static_cast<unsigned>(receives.posted % kReceives);
    const auto piece = site.piece(Places::received(peer, slot), kMessageMax);
    const auto id = receives.posted | std::uint64_t{peer} << 56;
    promise(qps_[end].post_receive({.id = id, .pieces = {&piece, 1}}) == driver::PostStatus::kOk,
            "host {}: a receive is refused", site.host);
  }
}

bool Connection::tend() {
  switch (state_) {
    case State::kUp:
      return false;
    case State::kBroken:
      state_ = State::kDraining;
      for (auto& qp : qps_) must(qp.to_error());
      return false;
    case State::kDraining:
      for (const unsigned end : {0, 1}) {
        if (!flows_[end].is_idle() || receives_[end].done != receives_[end].posted) return false;
      }
      return true;
    case State::kResting:
      if (fleet_.now() < rest_until_) return false;
      for (auto& qp : qps_) must(qp.to_reset());
      connect();
      return false;
  }
  return false;
}

void Connection::settle(std::uint64_t of_low, std::uint64_t of_high) {
  flows_[0].settle(of_low);
  flows_[1].settle(of_high);
  for (const auto& flow : flows_) flow.check_at_rest();
  state_ = State::kResting;
  rest_until_ = fleet_.now() + kRest;
}

void Connection::check_progress() const {
  for (const auto& flow : flows_) {
    const auto oldest = flow.oldest();
    promise(!oldest || fleet_.now() - *oldest < kPatience,
            "hosts {} and {}: a request has no completion after {} s", sites_[0]->host,
            sites_[1]->host, std::chrono::seconds(kPatience).count());
  }
  promise(state_ != State::kDraining || fleet_.now() - broken_at_ < kPatience,
          "hosts {} and {}: a queue pair in error has not flushed its requests", sites_[0]->host,
          sites_[1]->host);
}

}  // namespace softhca::bad_network
