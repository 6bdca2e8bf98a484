#include <memory>
#include <thread>
#include <vector>

#include "attacks.h"
#include "datagram_qp.h"

namespace softhca::guest {
namespace {

using driver::connectx::CompletionQueue;
using neighbours::must;

/// A CQ that no program polls, and that may overrun.
std::unique_ptr<CompletionQueue> bottomless(Life& life) {
  return must(
      CompletionQueue::create(life.loop().hca(), {.entries = 1024, .ignore_overrun = true}));
}

/// An IPv6 multicast address, and its Ethernet address (RFC 2464, 7).
driver::Gid group_gid(std::uint16_t number) {
  driver::Gid gid;
  gid.bytes[0] = std::byte{0xff};
  gid.bytes[1] = std::byte{0x0e};
  util::store_be16(gid.bytes.data() + 14, number);
  return gid;
}
driver::Mac group_mac(std::uint16_t number) {
  driver::Mac mac;
  mac.bytes[0] = mac.bytes[1] = std::byte{0x33};
  util::store_be16(mac.bytes.data() + 4, number);
  return mac;
}

}  // namespace

void flush_for_ever(Life& life) {
  const auto cq = bottomless(life);
  DatagramQp qp(life, *cq);
  // The device flushes the posted requests, so another processor keeps the queue full.
  std::thread([&qp] {
    for (std::uint16_t counter = 0;; counter = static_cast<std::uint16_t>(counter + 97)) {
      qp.claim_sends(counter);
    }
  }).detach();
  constexpr std::uint32_t kNoKey = 0xdead;
  while (life.goes_on()) {
    qp.post(qp.qpn(), life.loop().gid(), life.loop().hca().mac(), 1024, kNoKey);
    qp.ring();
    for (int i = 0; i < 20 && life.goes_on(); ++i) {
      if (qp.from_error_to_rts()) life.did();
    }
    qp.restart();
  }
}

void multiply_datagrams(Life& life) {
  constexpr std::uint16_t kGroup = 7;
  constexpr std::uint32_t kToGroup = 0xffffff;
  const auto cq = bottomless(life);
  std::vector<std::unique_ptr<DatagramQp>> members;
  for (int i = 0; i < 60 && life.goes_on(); ++i) {
    members.push_back(std::make_unique<DatagramQp>(life, *cq));
    members.back()->attach_to(group_gid(kGroup));
  }
  auto& sender = *members.front();
  while (life.goes_on()) {
    constexpr unsigned kBatch = 32;
    for (unsigned i = 0; i != kBatch; ++i) {
      sender.post(kToGroup, group_gid(kGroup), group_mac(kGroup), 1024, life.loop().key());
    }
    for (auto& member : members) member->receive(kBatch);
    sender.ring();
    life.did(kBatch);
  }
}

}  // namespace softhca::guest
