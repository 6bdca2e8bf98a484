#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "attacks.h"
#include "datagram_qp.h"

namespace softhca::guest {
namespace {

using driver::connectx::CompletionQueue;
using neighbours::must;

/// A queue that nobody reads and that does not mind.
std::unique_ptr<CompletionQueue> bottomless(Life& life) {
  return must(
      CompletionQueue::create(life.loop().hca(), {.entries = 1024, .ignore_overrun = true}));
}

/// IPv6 multicast, and the address of it on Ethernet (RFC 2464, 7).
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
  std::atomic<bool> ends = false;
  // What is posted is flushed; so another processor posts, always as much as can be.
  std::thread other([&] {
    for (std::uint16_t counter = 0; !ends; counter = static_cast<std::uint16_t>(counter + 97)) {
      qp.claim_sends(counter);
    }
  });
  constexpr std::uint32_t kNoKey = 0xdead;
  while (!life.over()) {
    qp.post(qp.qpn(), life.loop().gid(), life.loop().hca().mac(), 1024, kNoKey);
    qp.ring();
    for (int i = 0; i < 20 && !life.over(); ++i) {
      if (qp.from_error_to_rts()) life.did();
    }
    qp.restart();
  }
  ends = true;
  other.join();
}

void multiply_datagrams(Life& life) {
  constexpr std::uint16_t kGroup = 7;
  constexpr std::uint32_t kToGroup = 0xffffff;
  const auto cq = bottomless(life);
  std::vector<std::unique_ptr<DatagramQp>> members;
  // max_qp_mcg, or as many as there is time for; half of the time they get something.
  for (int i = 0; i < 240 && (i < 40 || !life.over()); ++i) {
    members.push_back(std::make_unique<DatagramQp>(life, *cq));
    members.back()->attach_to(group_gid(kGroup));
  }
  auto& sender = *members.front();
  while (!life.over()) {
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
