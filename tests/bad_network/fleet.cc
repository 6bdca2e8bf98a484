#include "fleet.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "driver/connectx/verbs_device.h"
#include "driver/expect.h"

namespace softhca::bad_network {
namespace {

using driver::test::must;

constexpr auto kEverything = std::numeric_limits<std::size_t>::max();
/// Step of virtual time while a driver waits for a command.
constexpr auto kIdleStep = std::chrono::microseconds(100);

}  // namespace

// A hash of 64 bits is enough: the test does not choose frames that collide.
void WireHash::mix(std::uint64_t word) {
  hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15;
  hash_ ^= hash_ >> 32;  // no format: a step of a hash
}

void WireHash::handle_frame(std::uint32_t ingress_port, const wire::Frame& frame) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const auto words = (frame.size() + kWord - 1) / kWord;
  bytes_.assign(words * kWord, std::byte{0});
  frame.copy_to(bytes_);
  mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  mix(ingress_port);
  mix(frame.size());
  for (std::size_t i = 0; i != words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes_.data() + i * kWord, kWord);
    mix(word);
  }
  ++frames_;
}

Fleet::Fleet(unsigned hosts) {
  switch_.set_tap(&hash_);
  stranger_ = switch_.create_port("stranger");
  for (unsigned i = 0; i != hosts; ++i) add();
}

Fleet::~Fleet() {
  // Drivers first, because they run all devices while they wait.
  for (auto& host : hosts_) host->verbs = nullptr;
  for (auto& host : hosts_) {
    host->host = nullptr;
    host->device = nullptr;
    host->link = nullptr;
  }
  hosts_.clear();
  stranger_.reset();
}

void Fleet::add() {
  const auto index = size();
  const auto number = static_cast<std::uint8_t>(index + 1);
  hosts_.push_back(std::make_unique<Host>());
  auto& host = *hosts_.back();
  host.name = "hca" + std::to_string(index);
  host.port = switch_.create_port(host.name);
  host.link = std::make_unique<fabric::FaultyLink>(*host.port, faults_, host.name, index);
  connectx::DeviceOptions card;
  card.name = host.name;
  card.mac = wire::MacAddress::from_u64(0x020000000000u + number);
  card.node_guid = 0x0200000000000000u + number;
  card.clock = [this] { return now_; };
  host.device = std::make_unique<connectx::Device>(std::move(card), *host.link);
  host.host = std::make_unique<driver::InProcessHost>(
      *host.device, driver::InProcessHost::Options{.progress = [this] { progress(); },
                                                   .clock = [this] { return now_; },
                                                   .on_interrupt = {}});
  host.verbs =
      std::make_unique<driver::verbs::Device>(must(driver::connectx::open_verbs(*host.host)));
  must(host.verbs->set_gid(0, driver::Gid::from_ipv4(10, 0, 0, number)));
}

/// Delivers the frames that are due, and runs each device once. False: nothing is left to do at
/// this time.
bool Fleet::pass() {
  ++turns_;
  for (auto& host : hosts_) {
    if (host->device == nullptr) continue;
    host->device->note_time(now_);
    host->link->handle_timeout(now_);
  }
  // Before any device runs: it may free the memory that frames refer to, and a frame that came
  // after its run would wait for the next event.
  switch_.deliver(kEverything);
  auto next = util::kNever;
  for (auto& host : hosts_) {
    if (host->device == nullptr) continue;
    next = std::min(next, host->device->run(now_));
    // A delivered frame may give work to a device that has already run.
    if (switch_.has_work()) next = now_;
    switch_.deliver(kEverything);
  }
  for (const auto& host : hosts_) next = std::min(next, host->link->next_event());
  next_ = next;
  return next_ <= now_;
}

void Fleet::progress() {
  if (only_polls_) return;
  if (!pass()) now_ = std::min(next_, now_ + kIdleStep);
}

void Fleet::run(util::Time until, const std::function<bool()>& look) {
  for (;;) {
    do {
      while (pass()) {
      }
    } while (look());
    if (next_ >= until) break;
    now_ = std::max(now_, next_);
  }
  now_ = std::max(now_, until);
}

std::size_t Fleet::poll(driver::verbs::CompletionQueue& cq, std::span<driver::Completion> out) {
  only_polls_ = true;
  const auto count = cq.poll(out);
  only_polls_ = false;
  return count;
}

}  // namespace softhca::bad_network
