// A hub with hubs of other machines, which the test plays.
#include "hub/other_hubs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hub/far_members.h"
#include "hub/hub_client.h"
#include "hub/uplink_process.h"
#include "wire/ib_header.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr unsigned kFar = 9 * 256 + 5;

class OthersByHand final : public OtherHubs {
 public:
  void attach(std::unique_ptr<fabric::Port> port, IsFull full,
              std::function<void()> raise) override {
    port_ = std::move(port);
    port_->set_receiver(&recorder);
    is_full = std::move(full);
    wake = std::move(raise);
  }
  void detach() override { port_.reset(); }
  bool has(unsigned number) const override { return number / 256 == far_block; }
  bool may_give(unsigned number) const override { return !has(number); }
  void handle_member(unsigned number, bool is_there) override {
    is_there ? void(members.insert(number)) : void(members.erase(number));
  }
  bool must_wait(std::span<const std::byte>) override { return waits; }
  Received receive(std::size_t& frames) override {
    if (arriving.empty()) return Received::kNothing;
    if (holds) return Received::kWaits;
    for (std::size_t i = 0; i != frames_of_a_datagram; ++i) port_->transmit(arriving.front());
    arriving.pop_front();
    frames = frames_of_a_datagram;
    of_this_turn += frames;
    most_of_a_turn = std::max(most_of_a_turn, of_this_turn);
    return Received::kFrames;
  }
  void settle() override {
    ++settled;
    of_this_turn = 0;
  }
  void arrive(const wire::Frame& frame) {
    arriving.push_back(frame);
    wake();
  }

  fabric::Recorder recorder;  ///< frames to the others
  IsFull is_full;
  std::function<void()> wake;
  std::set<unsigned> members;
  std::deque<wire::Frame> arriving;
  unsigned far_block = kFar / 256;
  bool waits = false;
  bool holds = false;
  int settled = 0;
  std::size_t frames_of_a_datagram = 1;
  std::size_t of_this_turn = 0;
  std::size_t most_of_a_turn = 0;

 private:
  std::unique_ptr<fabric::Port> port_;
};

class OtherHubsTest : public UplinkTest {
 protected:
  OtherHubsTest() { start(options()); }
  ~OtherHubsTest() override {
    a_.reset();
    b_.reset();
    hub_.reset();
  }
  Hub::Options options() {
    Hub::Options options;
    options.others = &others;
    options.ring_capacity = os::SharedRing::kCapacityMin;
    return options;
  }
  static std::uint64_t far_mac() { return address_of(kFar).to_u64(); }

  OthersByHand others;
};

TEST_F(OtherHubsTest, AFrameForANumberOfOthersGoesToThem) {
  others.arrive(fabric::frame_of(a_->mac(), far_mac(), "the switch learns where it is"));
  run_all();
  (void)b_->take();
  a_->send(far_mac(), "far");
  run_all();
  EXPECT_THAT(others.recorder.texts, ElementsAre("far"));
  EXPECT_THAT(b_->take(), IsEmpty());
  EXPECT_GE(others.settled, 1);
}

TEST_F(OtherHubsTest, AFrameForANumberOfNobodyGoesNowhere) {
  a_->send(address_of(77).to_u64(), "lost");
  run_all();
  EXPECT_THAT(others.recorder.texts, IsEmpty());
  EXPECT_EQ(hub_->counters().to_departed, 1u);
}

TEST_F(OtherHubsTest, AFrameFromOthersReachesItsProcess) {
  a_->send(far_mac(), "the switch learns where it is");
  run_all();
  (void)b_->take();
  others.arrive(fabric::frame_of(a_->mac(), far_mac(), "from far away"));
  run_all();
  EXPECT_THAT(a_->take(), ElementsAre("from far away"));
  EXPECT_THAT(b_->take(), IsEmpty());
}

/// A frame of another machine to the station of shared addresses, for a QP of block `block`.
wire::Frame to_station(std::uint64_t station, std::uint64_t from, RoceBlock block) {
  static const std::vector<std::byte> payload(64, std::byte{0x5a});
  wire::IbAddress address;
  address.source_mac = wire::MacAddress::from_u64(from);
  address.destination_mac = wire::MacAddress::from_u64(station);
  address.source_gid = wire::Gid::from_ipv4(0x0a000001);
  address.destination_gid = wire::Gid::from_ipv4(0x0a000002);
  wire::Bth bth;
  bth.opcode = wire::Opcode::RC_RDMA_WRITE_MIDDLE;
  bth.dest_qp = wire::Qpn(first_number_of(block) | 5);
  wire::Frame frame;
  wire::IbHeader(address).emit(bth, {}, payload.size(), frame);
  EXPECT_TRUE(frame.add_segment(payload));
  return frame;
}

// The station of shared addresses (station.h) is a member like a process.
TEST_F(OtherHubsTest, AFrameFromOthersForTheStationReachesTheProcessOfItsBlock) {
  a_ = join_hub(true);
  b_ = join_hub(true);
  for (auto* const process : {a_.get(), b_.get()}) process->send(far_mac(), "here");
  run_all();
  const auto number = a_->link().shared()->sharing().station;
  const auto station = address_of(number).to_u64();
  EXPECT_TRUE(others.members.contains(number));
  EXPECT_FALSE(others.is_full(to_station(station, far_mac(), 1).head()));
  others.arrive(to_station(station, far_mac(), 2));
  others.arrive(to_station(station, far_mac(), 1));
  others.arrive(to_station(station, far_mac(), 9));
  run_all();
  EXPECT_EQ(a_->take_packets().size(), 1u);
  const auto at_b = b_->take_packets();
  ASSERT_EQ(at_b.size(), 1u);
  EXPECT_EQ(at_b[0].address.destination_mac.to_u64(), b_->mac());
  EXPECT_EQ(hub_->station().counters().no_process, 1u);
}

TEST_F(OtherHubsTest, AnAnswerFromOthersForTheStationReachesEachProcess) {
  a_ = join_hub(true);
  b_ = join_hub(true);
  for (auto* const process : {a_.get(), b_.get()}) process->send(far_mac(), "here");
  run_all();
  wire::Frame reply = fabric::frame_of(address_of(a_->link().shared()->sharing().station).to_u64(),
                                       far_mac(), "is at ...");
  reply.mutable_head()[12] = std::byte{0x08};
  reply.mutable_head()[13] = std::byte{0x06};
  (void)a_->take();
  (void)b_->take();
  others.arrive(reply);
  run_all();
  EXPECT_THAT(a_->take(), ElementsAre("is at ..."));
  EXPECT_THAT(b_->take(), ElementsAre("is at ..."));
}

TEST_F(OtherHubsTest, ASenderWaitsForOthersAsForARing) {
  others.waits = true;
  a_->send(far_mac(), "waits");
  run_all();
  EXPECT_THAT(others.recorder.texts, IsEmpty());
  others.waits = false;
  others.wake();
  run_all();
  EXPECT_THAT(others.recorder.texts, ElementsAre("waits"));
}

TEST_F(OtherHubsTest, FramesOfOthersThatWaitComeLater) {
  others.holds = true;
  others.arrive(fabric::frame_of(a_->mac(), far_mac(), "late"));
  run_all();
  EXPECT_THAT(a_->take(), IsEmpty());
  others.holds = false;
  others.wake();
  run_all();
  EXPECT_THAT(a_->take(), ElementsAre("late"));
}

// A datagram has room for hundreds of short frames.
TEST_F(OtherHubsTest, ATurnHasAFewFramesOfOthersOnly) {
  others.frames_of_a_datagram = 200;
  for (int i = 0; i != 20; ++i) others.arrive(fabric::frame_of(far_mac(), far_mac(), "short"));
  for (int i = 0; i != 10; ++i) run_hub();
  EXPECT_TRUE(others.arriving.empty());
  EXPECT_LE(others.most_of_a_turn, 400u);
}

TEST_F(OtherHubsTest, AStationWithAFullRingIsFull) {
  const auto frame = fabric::frame_of(a_->mac(), far_mac(), "more");
  EXPECT_FALSE(others.is_full(frame.head()));
  const std::string text(4000, 'x');
  const auto long_frame = fabric::frame_of(a_->mac(), far_mac(), text);
  for (int i = 0; i != kMany; ++i) others.arrive(long_frame);
  run_hub();
  EXPECT_TRUE(others.is_full(frame.head()));
  run_all();
  EXPECT_FALSE(others.is_full(frame.head()));
  EXPECT_FALSE(others.is_full(fabric::frame_of(0xffffffffffff, far_mac(), "to all").head()));
}

TEST_F(OtherHubsTest, FramesToOthersAreNotCountedForLinks) {
  for (int i = 0; i != 15; ++i) a_->send(b_->mac(), "near");
  run_all();
  for (unsigned i = 0; i != 100; ++i) a_->send(address_of(kFar + i).to_u64(), "far");
  run_all();
  EXPECT_EQ(hub_->counters().links, 0u);
  a_->send(b_->mac(), "the sixteenth");
  run_all();
  EXPECT_EQ(hub_->counters().links, 1u);
}

TEST_F(OtherHubsTest, ProcessesAreReported) {
  EXPECT_THAT(others.members, ElementsAre(1, 2));
  b_.reset();
  run_all();
  EXPECT_THAT(others.members, ElementsAre(1));
}

TEST_F(OtherHubsTest, NumbersOfOthersAreNotGiven) {
  others.far_block = 0;
  const auto c = join_hub();
  EXPECT_EQ(c->mac(), address_of(257).to_u64());
}

TEST(FarMembersTest, AProcessSeesWhoLivesOnOtherMachines) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
  const std::string directory = ::mkdtemp(name.data());
  EXPECT_FALSE(is_far_member(directory, kFar)) << "no hub is joined";
  auto members = FarMembers::create(directory).value();
  EXPECT_FALSE(is_far_member(directory, kFar));
  members.set(kFar / 256, std::bitset<256>().set(kFar % 256).set(kFar % 256 + 1));
  members.set(255, std::bitset<256>().set(255));
  EXPECT_TRUE(is_far_member(directory, kFar));
  EXPECT_TRUE(is_far_member(directory, 65535));
  EXPECT_FALSE(is_far_member(directory, kFar + 2));
  members.set(kFar / 256, std::bitset<256>().set(kFar % 256 + 1));
  EXPECT_FALSE(is_far_member(directory, kFar));
  EXPECT_TRUE(is_far_member(directory, kFar + 1));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace softhca::hub
