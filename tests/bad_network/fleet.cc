#include "fleet.h"

#include <cstring>

namespace softhca::bad_network {

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
  mix(static_cast<std::uint64_t>(network_.now().time_since_epoch().count()));
  mix(ingress_port);
  mix(frame.size());
  for (std::size_t i = 0; i != words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes_.data() + i * kWord, kWord);
    mix(word);
  }
  ++frames_;
}

Fleet::Fleet(unsigned hosts)
    : Lab(std::vector<std::string>(hosts, "connectx"), {.virtual_time = true}) {
  network().set_tap(&hash_);
}

util::Time Fleet::run(util::Time now) {
  if (only_polls_) return now;  // no time passes
  ++turns_;
  return Lab::run(now);
}

void Fleet::run_before(util::Time until, const std::function<bool()>& look) {
  for (;;) {
    util::Time due;
    do {
      while (pass()) {
      }
      due = next();  // before `look` polls
    } while (look());
    if (due >= until) break;
    advance_to(due);
  }
  advance_to(until);
}

std::size_t Fleet::poll(driver::verbs::CompletionQueue& cq, std::span<driver::Completion> out) {
  only_polls_ = true;
  const auto count = cq.poll(out);
  only_polls_ = false;
  return count;
}

}  // namespace softhca::bad_network
