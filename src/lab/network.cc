#include "lab/network.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace softhca::lab {

namespace {

constexpr auto kEverything = std::numeric_limits<std::size_t>::max();
/// Time step for a waiting driver when nothing else happens, so that its patience ends.
constexpr auto kIdleStep = std::chrono::microseconds(100);

}  // namespace

Network::Network(const Options& options) : options_(options) {
  util::set_log_level(options.log_level);
  if (options.link == wire::Link::kInfiniband) subnet_.emplace(switch_);
}

fabric::Port& Network::create_port(const std::string& name) {
  auto& slot = slots_.emplace_back(Slot{.port = switch_.create_port(name), .link = nullptr});
  if (!options_.virtual_time) return *slot.port;
  slot.link = std::make_unique<fabric::FaultyLink>(*slot.port, faults_, name, slots_.size() - 1,
                                                   options_.link);
  return *slot.link;
}

driver::InProcessHost::Options Network::host_options() {
  driver::InProcessHost::Options host;
  host.progress = [this] { progress(); };
  host.clock = [this] { return now(); };
  return host;
}

const fabric::NetworkFaults::Counters& Network::add_fault(std::string_view rule) {
  auto parsed = fabric::parse_fault(rule);
  if (!parsed) throw std::runtime_error(parsed.error().message);
  return *faults_.find(faults_.add(*std::move(parsed)))->counters;
}

/// Delivers the frames whose delay is over. Before any function runs: it may free the memory that
/// frames refer to, and a frame that came after its run would wait for the next event.
void Network::release(util::Time now) {
  for (auto& slot : slots_) {
    if (slot.function != nullptr) slot.function->note_time(now);
    if (slot.link) slot.link->handle_timeout(now);
  }
  switch_.deliver(kEverything);
}

util::Time Network::run(util::Time now) {
  auto next = subnet_ ? subnet_->run(now) : util::kNever;
  if (options_.virtual_time) release(now);
  for (auto& slot : slots_) {
    if (slot.function != nullptr) next = std::min(next, slot.function->run(now));
    // A delivered frame may make work for a function that has already run.
    if (switch_.has_work()) next = now;
    switch_.deliver(kEverything);
  }
  if (!options_.virtual_time) return next;  // there are no links
  for (const auto& slot : slots_) {
    if (slot.link) next = std::min(next, slot.link->next_event());
  }
  return next;
}

bool Network::pass() {
  const auto time = now();
  next_ = run(time);
  return next_ <= time;
}

void Network::advance_to(util::Time time) { now_ = std::max(now_, time); }

void Network::progress() {
  if (!pass() && options_.virtual_time) now_ = std::min(next_, now_ + kIdleStep);
}

bool Network::run_until(const std::function<bool()>& done) {
  const auto limit = now_ + std::chrono::minutes(1);
  while (!done()) {
    if (pass()) continue;
    if (done()) return true;
    if (next_ == util::kNever || now_ > limit) return false;
    now_ = next_;
  }
  return true;
}

void Network::advance(util::Duration duration) {
  const auto end = now_ + duration;
  while (pass() || next_ <= end) advance_to(next_);
  now_ = end;
}

}  // namespace softhca::lab
