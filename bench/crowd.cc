#include "crowd.h"

namespace softhca::bench {
namespace {

constexpr std::size_t kInlineMax = 8;
constexpr std::uint8_t kAckTimeout = 21;  // 4.096 us * 2^21: 8.6 s

}  // namespace

Crowd::Crowd(Pair& pair, std::size_t count) : pair_(pair) {
  const auto make = [](Side& side) {
    return must(driver::connectx::QueuePair::create(
        *side.pd, {.send_cq = *side.cq,
                   .receive_cq = *side.cq,
                   .send = {.requests = kQueueDepth, .pieces = 1, .inline_size = kInlineMax},
                   .receive = {.requests = 1, .pieces = 1}}));
  };
  links_.reserve(count);
  for (std::size_t i = 0; i != count; ++i) {
    auto& link = links_.emplace_back(Link{.a = make(pair.a()), .b = make(pair.b())});
    // Timers must outlast a pass over all links, even where every instruction is counted.
    pair.connect(*link.a, *link.b, kAckTimeout);
  }
}

void Crowd::write_inline(std::size_t link, std::span<const std::byte> bytes, bool signaled) {
  must(links_[link].a->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                                  .inline_data = bytes,
                                  .remote_address = pair_.b().address(),
                                  .rkey = pair_.b().key->key(),
                                  .signaled = signaled}));
}

}  // namespace softhca::bench
