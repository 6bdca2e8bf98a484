// The memory of two rings between processes.
#include "fabric/ring_pair.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>

#include "os/memory_faults.h"
#include "os/shared_ring.h"
#include "wire/ethernet.h"
#include "wire/frame.h"
#include "wire/mac_address.h"

namespace softhca::fabric {
namespace {

class RingPairTest : public testing::Test {
 protected:
  static os::SharedRing attach(const os::SharedRing& ring) {
    return os::SharedRing::attach(ring.fd()).value();
  }
  static wire::Frame frame_of(std::size_t payload) {
    wire::Frame frame;
    wire::Ethernet{wire::MacAddress::from_u64(0x020000000001),
                   wire::MacAddress::from_u64(0x020000000002), wire::EtherType{0x88b5}}
        .emit(util::MutableView<wire::EthernetLayout>(frame.resize_head(14)));
    (void)frame.own_payload(payload);
    return frame;
  }
  /// Sends a ring's worth of frames, which the peer takes.
  void send_many() {
    const auto frame = frame_of(2000);
    for (std::size_t sent = 0; sent < kCapacity; sent += frame.size()) {
      ours_.send(frame);
      ASSERT_FALSE(peer_.next().empty());
      peer_.release(peer_.position());
    }
  }
  long pages() const {
    struct stat status{};
    EXPECT_EQ(::fstat(there_.fd(), &status), 0);
    return status.st_blocks / 8;
  }

  static constexpr std::size_t kCapacity = os::SharedRing::kCapacityMin;
  static constexpr long kAll = kCapacity / 4096;
  os::SharedRing there_ = os::SharedRing::create(kCapacity).value();
  os::SharedRing back_ = os::SharedRing::create(kCapacity).value();
  os::RingConsumer peer_{there_};
  RingPair ours_{attach(there_), attach(back_)};
};

// The program has unmapped memory that frames refer to: the bytes of all frames of the turn may be
// wrong.
TEST_F(RingPairTest, FramesOfATurnWithAFaultOnMemoryAreLost) {
  os::MemoryFaults::note();
  for (const std::size_t size : {100, 2000, 50}) ours_.send(frame_of(size));
  ours_.free_idle_pages();
  os::MemoryFaults::clear();
  EXPECT_TRUE(peer_.next().empty());
  EXPECT_EQ(ours_.counters().dropped_fault, 3u);
  ours_.send(frame_of(70));
  EXPECT_EQ(peer_.next().size(), 84u);
}

TEST_F(RingPairTest, ARingThatCarriesNothingGivesItsMemoryBack) {
  send_many();
  ours_.free_idle_pages();
  EXPECT_GE(pages(), kAll) << "it has just been used";
  ours_.free_idle_pages();
  EXPECT_LE(pages(), 4) << "indices, and the page of the next record";
  send_many();
  EXPECT_GE(pages(), kAll) << "it is used again";
}

}  // namespace
}  // namespace softhca::fabric
