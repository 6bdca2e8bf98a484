// Multicast between two machines: drivers with UD QPs, devices, and their UDP sockets on addresses
// of the loopback interface.
#include <gtest/gtest.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "connectx/device.h"
#include "driver/connectx/verbs_device.h"
#include "driver/expect.h"
#include "driver/in_process_host.h"
#include "driver/verbs/verbs.h"
#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/group_address.h"
#include "hub/loopback_address.h"
#include "hub/open_roce_socket.h"
#include "hub/roce_link.h"
#include "wire/group_mac.h"

namespace softhca::door {
namespace {

using driver::test::must;

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::size_t kGrh = 40, kSlot = 2048;
constexpr unsigned kSlots = 8;

using Messages = std::vector<std::vector<std::byte>>;

class Machine {
 public:
  explicit Machine(unsigned number)
      : gid_(hub::loopback_address(number)),
        mac_(wire::MacAddress::from_u64(0x020000000000 + number)),
        port_(fabric_.create_port("device")),
        link_(fabric_.create_port("sockets"), mac_, util::monotonic_now, hub::open_roce_socket) {
    connectx::DeviceOptions card;
    card.mac = mac_;
    card.node_guid = mac_.to_u64();
    device_ = std::make_unique<connectx::Device>(std::move(card), *port_);
    driver::InProcessHost::Options options;
    options.progress = [this] { progress(); };
    host_ = std::make_unique<driver::InProcessHost>(*device_, std::move(options));
    verbs_ = std::make_unique<driver::verbs::Device>(must(driver::connectx::open_verbs(*host_)));
    must(verbs_->set_gid(0, gid_));
    link_.set_addresses(std::span(&gid_, 1));
  }
  driver::verbs::Device& verbs() { return *verbs_; }
  hub::RoceLink& link() { return link_; }

  void progress() {
    link_.receive(fabric::kAllFrames);
    fabric_.deliver(fabric::kAllFrames);
    device_->run(util::monotonic_now());
    fabric_.deliver(fabric::kAllFrames);
  }
  /// As a card does when its QPs are attached to a group (Machines::note_member).
  void follow(const std::vector<wire::Gid>& groups) {
    link_.set_groups(groups, ::if_nametoindex("lo"));
  }

 private:
  const wire::Gid gid_;
  const wire::MacAddress mac_;
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> port_;
  hub::RoceLink link_;
  std::unique_ptr<connectx::Device> device_;
  std::unique_ptr<driver::InProcessHost> host_;
  std::unique_ptr<driver::verbs::Device> verbs_;
};

/// A UD QP with posted receives.
struct Program {
  explicit Program(Machine& machine)
      : pd(must(machine.verbs().allocate_pd())),
        region(must(pd.register_memory(memory, driver::MemoryAccess::all()))),
        cq(must(machine.verbs().create_cq())),
        sends(must(machine.verbs().create_cq())),
        qp(must(pd.create_qp(
            {.type = driver::verbs::QpType::kUd, .send_cq = sends, .receive_cq = cq}))) {
    must(activate(qp, {.qkey = kQkey}));
    for (unsigned i = 0; i != kSlots; ++i) {
      const auto piece = region.piece(i * kSlot, kSlot);
      EXPECT_EQ(qp.post_receive({.id = i, .pieces = {&piece, 1}}), driver::PostStatus::kOk);
    }
  }
  /// The messages that have come, without the space for the GRH.
  Messages take() {
    std::array<driver::Completion, kSlots> done;
    const auto count = cq.poll(done);
    Messages all;
    for (const auto& one : std::span(done).first(count)) {
      EXPECT_EQ(one.status, driver::WorkStatus::kSuccess);
      const auto* const begin = memory.data() + one.id * kSlot;
      all.emplace_back(begin + kGrh, begin + one.byte_count);
    }
    return all;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(kSlot * (kSlots + 1));
  driver::verbs::ProtectionDomain pd;
  driver::verbs::MemoryRegion region;
  driver::verbs::CompletionQueue cq, sends;
  driver::verbs::QueuePair qp;
};

class MulticastTest : public testing::Test {
 protected:
  void send(std::span<const std::byte> message) {
    std::ranges::copy(message, sender_.memory.begin() + kSlot * kSlots);
    driver::verbs::Path path{.gid = group_};
    path.mac = wire::mac_of_group(group_);
    const auto to_all = must(sender_.pd.make_address(path));
    const auto piece = sender_.region.piece(kSlot * kSlots, message.size());
    ASSERT_EQ(sender_.qp.post_send({.pieces = {&piece, 1},
                                    .address = &to_all,
                                    .remote_qpn = 0xffffff,
                                    .remote_qkey = kQkey}),
              driver::PostStatus::kOk);
    for (int i = 0; i != 4; ++i) {
      a_.progress();
      b_.progress();
    }
  }
  const wire::Gid group_ = hub::group_address(1);
  Machine a_{1}, b_{2};
  Program sender_{a_}, first_{b_}, second_{b_};
};

TEST_F(MulticastTest, EachAttachedQpOfTheOtherMachineGetsTheMessage) {
  const auto message = driver::test::pattern(1000, 7);
  b_.follow({group_});
  send(message);
  EXPECT_TRUE(first_.take().empty()) << "no QP is attached";
  must(first_.qp.attach(group_));
  must(second_.qp.attach(group_));
  send(message);
  EXPECT_EQ(first_.take(), Messages{message});
  EXPECT_EQ(second_.take(), Messages{message});
  must(first_.qp.detach(group_));
  send(message);
  EXPECT_TRUE(first_.take().empty());
  EXPECT_EQ(second_.take(), Messages{message});
  b_.follow({});
  send(message);
  EXPECT_TRUE(second_.take().empty());
  EXPECT_EQ(a_.link().sockets().at(0)->counters().sent, 4u);
}

// Its own attached QPs get it in the device, and not a second time by a socket.
TEST_F(MulticastTest, TheSenderGetsItsOwnMessageOnce) {
  must(sender_.qp.attach(group_));
  a_.follow({group_});
  must(first_.qp.attach(group_));
  b_.follow({group_});
  const auto message = driver::test::pattern(100, 8);
  send(message);
  EXPECT_EQ(sender_.take(), Messages{message});
  EXPECT_EQ(first_.take(), Messages{message});
  EXPECT_EQ(a_.link().multicast().members().at(0).socket->counters().lost.own, 1u);
}

}  // namespace
}  // namespace softhca::door
