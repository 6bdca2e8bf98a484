// The lab that all these tests use: its parts, its time, its cables.
#include "lab/lab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "driver/verbs/verbs.h"

namespace softhca::lab {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// The message that is thrown, or empty.
std::string refusal(const std::vector<std::string>& names, const Lab::Options& options = {}) {
  try {
    const Lab lab(names, options);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Lab, AnUnknownNameIsReportedWithThoseThatThereAre) {
  EXPECT_THAT(refusal({"connectx", "toaster"}), HasSubstr("'toaster'"));
  for (const auto model : models())
    EXPECT_THAT(refusal({"toaster"}), HasSubstr(std::string(model)));
}

TEST(Lab, AModelWithoutAnInfinibandPortIsRefusedOnSuchALink) {
  for (const auto model : models()) {
    const auto text = refusal({std::string(model)}, {.link = wire::Link::kInfiniband});
    EXPECT_EQ(text.empty(), has_link(model, wire::Link::kInfiniband)) << model << ": " << text;
    EXPECT_TRUE(has_link(model, wire::Link::kEthernet)) << model;
  }
  EXPECT_THAT(refusal({"connectx"}, {.link = wire::Link::kInfiniband}), HasSubstr("Ethernet"));
}

TEST(Lab, EachDeviceHasAnAddressOfItsOwn) {
  Lab lab({"connectx", "rsnic", "jingzhao", "jingzhao"}, {.virtual_time = true});
  for (std::size_t i = 0; i != lab.size(); ++i) {
    const auto number = static_cast<std::uint8_t>(i + 1);
    driver::Mac mac;
    mac.bytes = {std::byte{2}, {}, {}, {}, {}, std::byte{number}};
    EXPECT_EQ(lab.device(i).attributes().mac, mac) << lab.name(i);
    EXPECT_EQ(lab.device(i).gid(0), driver::Gid::from_ipv4(10, 0, 0, number)) << lab.name(i);
  }
}

TEST(Lab, OnInfinibandEachDeviceHasALidOfItsOwn) {
  Lab lab({"jingzhao", "jingzhao", "jingzhao"},
          {.virtual_time = true, .link = wire::Link::kInfiniband});
  std::set<std::uint16_t> lids;
  for (std::size_t i = 0; i != lab.size(); ++i) lids.insert(lab.device(i).attributes().lid);
  EXPECT_EQ(lids.size(), 3u);
  EXPECT_EQ(lids.count(0), 0u);
}

TEST(Lab, VirtualTimeGoesAsFarAsItIsAsked) {
  Lab lab({"jingzhao"}, {.virtual_time = true});
  const auto before = lab.now();
  lab.advance(3s);
  EXPECT_EQ(lab.now() - before, 3s);
}

TEST(Lab, RunUntilGivesUpOnAConditionThatNeverHolds) {
  Lab lab({"jingzhao", "connectx"}, {.virtual_time = true});
  EXPECT_FALSE(lab.run_until([] { return false; }));
  EXPECT_TRUE(lab.run_until([] { return true; }));
}

/// UC messages from device 0 to device 1, whose links fail by a rule.
class Messages {
 public:
  explicit Messages(std::string_view rule) {
    lab_.add_fault(rule);
    EXPECT_TRUE(driver::verbs::connect(a_, b_));
  }

  void send() {
    const auto place = to_.piece(0, 64);
    EXPECT_EQ(b_.post_receive({.pieces = {&place, 1}}), driver::PostStatus::kOk);
    EXPECT_EQ(a_.post_send({.inline_data = std::span<const std::byte>(memory_).first(8)}),
              driver::PostStatus::kOk);
    EXPECT_TRUE(cq_a_.wait());
  }
  bool arrived() {
    driver::Completion done;
    return cq_b_.poll({&done, 1}) == 1;
  }
  Lab& lab() { return lab_; }

 private:
  driver::verbs::QueuePair make_qp(driver::verbs::ProtectionDomain& pd,
                                   driver::verbs::CompletionQueue& cq) {
    return pd
        .create_qp({.type = driver::verbs::QpType::kUc,
                    .send_cq = cq,
                    .receive_cq = cq,
                    .capacity = {.inline_size = 16}})
        .value();
  }

  Lab lab_{{"jingzhao", "jingzhao"}, {.virtual_time = true}};
  std::vector<std::byte> memory_ = std::vector<std::byte>(64);
  driver::verbs::ProtectionDomain pd_a_ = lab_.device(0).allocate_pd().value();
  driver::verbs::ProtectionDomain pd_b_ = lab_.device(1).allocate_pd().value();
  driver::verbs::MemoryRegion to_ =
      pd_b_.register_memory(memory_, driver::MemoryAccess::all()).value();
  driver::verbs::CompletionQueue cq_a_ = lab_.device(0).create_cq().value();
  driver::verbs::CompletionQueue cq_b_ = lab_.device(1).create_cq().value();
  driver::verbs::QueuePair a_ = make_qp(pd_a_, cq_a_);
  driver::verbs::QueuePair b_ = make_qp(pd_b_, cq_b_);
};

/// How many of a hundred messages reach device 1 before the first loss.
std::size_t arrived(std::string_view rule) {
  Messages messages(rule);
  for (std::size_t count = 0; count != 100; ++count) {
    messages.send();
    messages.lab().advance(1ms);
    if (!messages.arrived()) return count;
  }
  return 100;
}

TEST(Lab, ALinkFailsByTheRulesOfItsPort) {
  EXPECT_LT(arrived("port=jingzhao0,probability=0.2,do=lose"), 100u);
  EXPECT_EQ(arrived("port=jingzhao1,probability=0.2,do=lose"), 100u) << "the one that receives";
}

// The link of device 1 releases the request when device 0 has already run at this time. The ACK
// timeout is 67 ms.
TEST(Lab, AFrameThatALinkReleasesIsAnsweredAtThisTime) {
  constexpr std::uint32_t kLength = 4096;  // more than a responder answers when the request arrives
  Lab lab({"connectx", "connectx"}, {.virtual_time = true});
  lab.faults().add(fabric::parse_fault("port=connectx1,do=delay,time=1ms").value());
  std::vector<std::byte> from(kLength, std::byte{0x5a}), to(kLength);
  auto pd_a = lab.device(0).allocate_pd().value(), pd_b = lab.device(1).allocate_pd().value();
  auto region_a = pd_a.register_memory(from, driver::MemoryAccess::all()).value();
  auto region_b = pd_b.register_memory(to, driver::MemoryAccess::all()).value();
  auto cq_a = lab.device(0).create_cq().value(), cq_b = lab.device(1).create_cq().value();
  auto a = pd_a.create_qp({.send_cq = cq_a, .receive_cq = cq_a}).value();
  auto b = pd_b.create_qp({.send_cq = cq_b, .receive_cq = cq_b}).value();
  ASSERT_TRUE(driver::verbs::connect(a, b));
  const auto piece = region_b.piece(0, kLength);
  ASSERT_EQ(b.post_send({.opcode = driver::SendOpcode::kRdmaRead,
                         .pieces = {&piece, 1},
                         .remote_address = region_a.address(),
                         .rkey = region_a.rkey()}),
            driver::PostStatus::kOk);
  lab.advance(3ms);
  EXPECT_EQ(to, from);
}

TEST(Lab, ADelayedFrameArrivesWhenItsDelayIsOver) {
  Messages messages("port=jingzhao0,do=delay,time=3ms");
  const auto before = messages.lab().now();
  messages.send();
  EXPECT_FALSE(messages.arrived());
  EXPECT_TRUE(messages.lab().run_until([&] { return messages.arrived(); }));
  EXPECT_GE(messages.lab().now() - before, 3ms);
  EXPECT_LT(messages.lab().now() - before, 4ms);
}

TEST(Lab, ARuleThatCannotBeReadIsRefused) {
  Lab lab({"jingzhao"}, {.virtual_time = true});
  EXPECT_THROW(lab.add_fault("port=jingzhao0,do=dance"), std::runtime_error);
  EXPECT_TRUE(lab.faults().rules().empty());
}

TEST(Lab, ADeviceThatIsRefusedClosesThoseBeforeIt) {
  EXPECT_THAT(refusal({"jingzhao", "jingzhao", "connectx"}, {.link = wire::Link::kInfiniband}),
              HasSubstr("Ethernet"));
}

}  // namespace
}  // namespace softhca::lab
