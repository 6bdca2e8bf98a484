#include "campaign.h"

#include <algorithm>
#include <array>
#include <utility>

namespace softhca::bad_network {
namespace {

using namespace std::chrono_literals;

/// Between two actions of all hosts: half of it on average.
constexpr unsigned kSparse = 400'000;  // microseconds
constexpr std::size_t kLane = 8;       ///< bits of the shared counter that a host adds to
constexpr std::uint64_t kLaneMask = 0xff;

unsigned peer_of(const driver::Completion& done) { return static_cast<unsigned>(done.id >> 56); }

}  // namespace

Campaign::Campaign(std::uint64_t seed)
    : random_(seed), memory_(kHosts * Places::kSize), weather_(fleet_, seed + 1) {
  for (unsigned host = 0; host != kHosts; ++host) {
    sites_.push_back(std::make_unique<Site>(
        fleet_, host, memory_.bytes().subspan(host * Places::kSize, Places::kSize)));
  }
  for (unsigned low = 0; low != kHosts; ++low) {
    for (unsigned high = low + 1; high != kHosts; ++high) {
      connections_.push_back(
          std::make_unique<Connection>(fleet_, *sites_[low], *sites_[high], random_));
    }
  }
  datagrams_ = std::make_unique<Datagrams>(fleet_, sites_);
  next_act_ = fleet_.now();
}

Connection& Campaign::between(unsigned a, unsigned b) {
  const auto low = std::min(a, b), high = std::max(a, b);
  return *connections_[low * kHosts - low * (low + 1) / 2 + high - low - 1];
}

util::Time Campaign::next() const {
  auto next = std::min(next_act_, weather_.next());
  for (const auto& connection : connections_) next = std::min(next, connection->next());
  return next;
}

Outcome Campaign::run(util::Duration time) {
  const auto end = fleet_.now() + time;
  while (fleet_.now() < end) {
    weather_.handle();
    tend();
    if (fleet_.now() >= next_act_) act();
    fleet_.run_before(std::min(next(), end), [this] { return look(); });
  }
  weather_.clear();
  const auto quiet = fleet_.now() + 30s;
  while (fleet_.now() < quiet) {
    tend();
    for (auto& connection : connections_) connection->fill_receives();
    fleet_.run_before(fleet_.now() + 1s, [this] { return look(); });
  }
  check_at_rest();
  return outcome();
}

/// Takes all completions. True: there were some.
bool Campaign::look() {
  bool found = false;
  for (unsigned host = 0; host != kHosts; ++host) found = take(host) || found;
  if (found) tend();
  return found;
}

bool Campaign::take(unsigned host) {
  std::array<driver::Completion, 64> done;
  bool found = false;
  for (const bool sends : {true, false}) {
    auto& cq = sends ? sites_[host]->sends : sites_[host]->receives;
    const auto count = fleet_.poll(cq, done);
    found = found || count != 0;
    for (const auto& one : std::span(done).first(count)) {
      const auto peer = peer_of(one);
      if (peer == Datagrams::kPeer) {
        sends ? datagrams_->complete(host, one) : datagrams_->receive(host, one);
        continue;
      }
      auto& connection = between(host, peer);
      const auto before = connection.state();
      sends ? connection.complete(host, one) : connection.receive(host, one);
      promise(connection.state() == before || weather_.may_break(host, peer),
              "hosts {} and {}: the connection breaks at {} us without a storm", host, peer,
              fleet_.now().time_since_epoch().count() / 1000);
    }
  }
  return found;
}

void Campaign::tend() {
  for (unsigned low = 0; low != kHosts; ++low) {
    for (unsigned high = low + 1; high != kHosts; ++high) {
      if (between(low, high).tend()) settle(low, high);
    }
  }
}

/// Random requests of a host, or a datagram.
void Campaign::act() {
  next_act_ = fleet_.now() + std::chrono::microseconds(1 + below(random_, kSparse));
  const auto host = below(random_, kHosts);
  auto peer = below(random_, kHosts - 1);
  if (peer >= host) ++peer;
  auto& connection = between(host, peer);
  connection.fill_receives();
  if (below(random_, 6) == 0) return datagrams_->post(host, random_);
  connection.post(host, 1 + below(random_, kWindow), random_);
  // Half of the time the peer sends as well.
  if (below(random_, 2) == 0) connection.post(peer, 1 + below(random_, kWindow), random_);
  for (const auto& one : connections_) one->check_progress();
}

/// The FETCH_ADDs to the shared counter of `to` whose fate is unknown, and that were executed: each
/// host adds in a lane of its own, in which fewer than 256 are doubtful.
std::uint64_t Campaign::doubtful_shared_adds(unsigned from, unsigned to) {
  auto rest = sites_[to]->load(Places::kShared);
  for (unsigned host = 0; host != kHosts; ++host) {
    if (host == to) continue;
    rest -= between(host, to).flow_from(host).shared_adds() << (kLane * host);
  }
  for (unsigned host = 0; host != kHosts; ++host) {
    const auto most = host == to ? 0 : between(host, to).flow_from(host).doubtful_shared_adds();
    const auto executed = rest >> (kLane * host) & kLaneMask;
    promise(executed <= most,
            "host {}: {} FETCH_ADDs of host {} to the shared counter were executed, and {} are "
            "under way",
            to, executed, host, most);
  }
  return rest >> (kLane * from) & kLaneMask;
}

void Campaign::settle(unsigned low, unsigned high) {
  const auto of_low = doubtful_shared_adds(low, high), of_high = doubtful_shared_adds(high, low);
  between(low, high).settle(of_low, of_high);
}

void Campaign::check_at_rest() {
  for (unsigned host = 0; host != kHosts; ++host) {
    for (unsigned peer = 0; peer != kHosts; ++peer) {
      if (peer == host) continue;
      auto& connection = between(host, peer);
      promise(connection.state() == Connection::State::kUp && connection.flow_from(host).is_idle(),
              "hosts {} and {}: not at rest", host, peer);
      connection.flow_from(host).check_at_rest();
      promise(doubtful_shared_adds(host, peer) == 0, "host {}: wrong shared counter", peer);
    }
  }
  promise(datagrams_->completed() == datagrams_->posted(), "{} datagrams, {} completions",
          datagrams_->posted(), datagrams_->completed());
}

Outcome Campaign::outcome() const {
  Outcome outcome{.hash = fleet_.hash().value(),
                  .frames = fleet_.hash().frames(),
                  .datagrams = datagrams_->posted(),
                  .datagrams_received = datagrams_->received(),
                  .duplicates = datagrams_->duplicates(),
                  .storms = weather_.storms(),
                  .flows = {},
                  .rules = weather_.rules(),
                  .fired = weather_.fired()};
  for (const auto& connection : connections_) {
    outcome.breaks += connection->breaks();
    for (const auto& flow : connection->flows()) outcome.flows += flow.counts();
  }
  return outcome;
}

}  // namespace softhca::bad_network
