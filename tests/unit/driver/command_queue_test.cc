// The command queue against a misbehaving device. softhca's device behaves, so this test scripts
// one.
#include "driver/connectx/command_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "driver/connectx/pages.h"
#include "driver/in_process_host.h"
#include "driver/pci.h"
#include "spec/connectx/hca.h"

namespace softhca::driver::connectx {
namespace {

using spec::command_mailbox_block;
using spec::command_opcode;
using spec::command_queue_entry;
using spec::delivery_status;
using spec::init_segment;

constexpr pcie::ConfigSpace::Identity kIdentity{.vendor_id = 0x15b3,
                                                .device_id = 0x1013,
                                                .subsystem_vendor_id = 0,
                                                .subsystem_id = 0,
                                                .class_code = 0x020000,
                                                .revision_id = 0};
constexpr std::array kBars{pcie::Bar{.size = 1 << 20, .is_64bit = true, .prefetchable = true}};

/// An initialization segment, and commands that the test answers.
class ScriptedDevice final : public pcie::Function {
 public:
  ScriptedDevice()
      : Function("scripted", kIdentity, kBars,
                 {.vectors = 1, .bar = 0, .table_offset = 0x80000, .pba_offset = 0x81000}) {
    segment.set(init_segment::cmd_interface_rev, 5);
    segment.set(init_segment::log_cmdq_size, 5);
    segment.set(init_segment::log_cmdq_stride, 6);
  }
  util::Time run_device(util::Time) override { return util::kNever; }

  /// Writes the answer into the entry. If true, the device returns the entry to software.
  std::function<bool(unsigned slot, util::MutableView<command_queue_entry> entry)> answer;
  util::Struct<init_segment> segment;

 private:
  void read_register(unsigned, std::uint64_t offset, std::span<std::byte> out) override {
    std::memset(out.data(), 0, out.size());
    if (offset + out.size() > init_segment::kSize) return;
    std::memcpy(out.data(), segment.bytes().data() + offset, out.size());
  }
  void write_register(unsigned, std::uint64_t offset, std::span<const std::byte> in) override {
    constexpr auto kAddress = init_segment::cmdq_phy_addr.kOffset;
    if (offset == kAddress || offset == kAddress + 4) {
      std::memcpy(queue_address_.data() + (offset - kAddress), in.data(), in.size());
    } else if (offset == init_segment::command_doorbell_vector.kOffset) {
      const auto slot = static_cast<unsigned>(std::countr_zero(util::load_be32(in.data())));
      const auto at = util::load_be64(queue_address_.data()) + slot * command_queue_entry::kSize;
      auto* host = dma().translate(at, command_queue_entry::kSize, pcie::DmaAccess::kReadWrite);
      ASSERT_NE(host, nullptr);
      const util::MutableView<command_queue_entry> entry({host, command_queue_entry::kSize});
      EXPECT_EQ(entry.get(command_queue_entry::ownership), 1u);
      if (answer && answer(slot, entry)) entry.set(command_queue_entry::ownership, 0);
    }
  }
  void reset_device() override {}

  std::array<std::byte, 8> queue_address_{};
};

class CommandQueueTest : public ::testing::Test {
 protected:
  CommandQueueTest() { enable_bus_master(host_); }
  util::Result<std::unique_ptr<CommandQueue>> create() {
    return CommandQueue::create(host_, std::chrono::seconds(1));
  }
  template <class T>
  void expect_failure(const util::Result<T>& result, std::string_view words) {
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  }
  void answer_with(std::uint8_t delivery, std::span<const std::byte> output = {}) {
    device_.answer = [=, this](unsigned, util::MutableView<command_queue_entry> entry) {
      entry.set(command_queue_entry::status, delivery);
      std::copy(output.begin(), output.end(),
                entry.sub(command_queue_entry::command_output_inline_data).begin());
      ++answered_;
      return true;
    };
  }

  util::Time now_{};
  unsigned answered_ = 0;
  ScriptedDevice device_;
  InProcessHost host_{device_,
                      {.progress = [this] { now_ += std::chrono::milliseconds(1); },
                       .clock = [this] { return now_; }}};
};

TEST_F(CommandQueueTest, RefusesAnotherRevisionOfTheInterface) {
  device_.segment.set(init_segment::cmd_interface_rev, 4);
  expect_failure(create(), "revision 4");
}

TEST_F(CommandQueueTest, GivesUpOnADeviceThatStaysInInitialization) {
  device_.segment.set(init_segment::initializing, 1);
  expect_failure(create(), "initialization");
  EXPECT_GE(now_.time_since_epoch(), std::chrono::seconds(1));
}

TEST_F(CommandQueueTest, RefusesAQueueThatDoesNotFitItsPage) {
  device_.segment.set(init_segment::log_cmdq_stride, 8);
  expect_failure(create(), "does not fit");
}

TEST_F(CommandQueueTest, ADeviceWithoutAnswerIsGivenUpAndNothingMoreIsSent) {
  const auto queue = create();
  ASSERT_TRUE(queue);
  device_.answer = [this](unsigned, util::MutableView<command_queue_entry>) {
    ++answered_;
    return false;
  };
  const Request<spec::nop_in> nop(command_opcode::NOP);
  expect_failure((*queue)->run(nop), "NOP: no answer");
  expect_failure((*queue)->run(nop), "earlier command");
  EXPECT_EQ(answered_, 1u);
}

/// A host whose connection to the device breaks while a driver waits.
class LosableHost final : public InProcessHost {
 public:
  using InProcessHost::InProcessHost;
  bool lost() const override { return is_lost; }
  bool is_lost = false;
};

TEST_F(CommandQueueTest, ADeviceThatIsGoneIsNotWaitedFor) {
  LosableHost host(device_, {.progress = [this] { now_ += std::chrono::milliseconds(1); },
                             .clock = [this] { return now_; }});
  enable_bus_master(host);
  const auto queue = CommandQueue::create(host, std::chrono::seconds(1));
  ASSERT_TRUE(queue);
  device_.answer = [&](unsigned, util::MutableView<command_queue_entry>) {
    host.is_lost = true;
    return false;
  };
  expect_failure((*queue)->run(Request<spec::nop_in>(command_opcode::NOP)), "is gone");
  EXPECT_LT(now_.time_since_epoch(), std::chrono::milliseconds(10));
  expect_failure((*queue)->run(Request<spec::nop_in>(command_opcode::NOP)), "is gone");
}

TEST_F(CommandQueueTest, ADeviceThatIsGoneBeforeItsInitializationEndsIsNotWaitedFor) {
  LosableHost host(device_, {.progress = [this] { now_ += std::chrono::milliseconds(1); },
                             .clock = [this] { return now_; }});
  enable_bus_master(host);
  host.is_lost = true;
  device_.segment.set(init_segment::initializing, 1);
  expect_failure(CommandQueue::create(host, std::chrono::seconds(1)), "is gone");
  EXPECT_LT(now_.time_since_epoch(), std::chrono::milliseconds(10));
}

TEST_F(CommandQueueTest, ADeliveryErrorIsNamed) {
  const auto queue = create();
  ASSERT_TRUE(queue);
  answer_with(static_cast<std::uint8_t>(delivery_status::TOKEN_ERR));
  expect_failure((*queue)->run(Request<spec::nop_in>(command_opcode::NOP)), "TOKEN_ERR");
}

TEST_F(CommandQueueTest, StatusAndSyndromeAreNamed) {
  const auto queue = create();
  ASSERT_TRUE(queue);
  std::array<std::byte, 16> output{};
  output[0] = std::byte{0x05};
  util::store_be32(output.data() + 4, 0xabc123);
  answer_with(0, output);
  expect_failure((*queue)->run(Request<spec::nop_in>(command_opcode::NOP)),
                 "NOP: status BAD_RESOURCE, syndrome 0xabc123");
  output[0] = std::byte{0xee};
  answer_with(0, output);
  expect_failure((*queue)->run(Request<spec::nop_in>(command_opcode::NOP)), "status 0xee");
}

TEST_F(CommandQueueTest, InputAndOutputGoThroughAsManyBlocksAsTheyNeed) {
  const auto queue = create();
  ASSERT_TRUE(queue);
  // The entry holds 16 bytes, each block 512. The device echoes the input.
  for (const std::size_t size : {16u, 17u, 528u, 529u, 5000u, 100u}) {
    device_.answer = [&](unsigned slot, util::MutableView<command_queue_entry> entry) {
      EXPECT_EQ(slot, 0u);
      EXPECT_EQ(entry.get(command_queue_entry::type), 7u);
      EXPECT_EQ(entry.get(command_queue_entry::input_length), size);
      EXPECT_EQ(entry.get(command_queue_entry::output_length), size);
      const auto in = entry.sub(command_queue_entry::command_input_inline_data);
      const auto out = entry.sub(command_queue_entry::command_output_inline_data);
      std::copy(in.begin(), in.end(), out.begin());
      std::memset(out.data(), 0, 8);  // status OK
      auto from = entry.get(command_queue_entry::input_mailbox_pointer) << 9;
      auto to = entry.get(command_queue_entry::output_mailbox_pointer) << 9;
      std::uint32_t number = 0;
      for (std::size_t done = 16; done < size; done += 512, ++number) {
        const auto block = [&](pcie::Iova at) {
          EXPECT_EQ(at % 1024, 0u);
          auto* host =
              device_.dma().translate(at, command_mailbox_block::kSize, pcie::DmaAccess::kRead);
          return util::MutableView<command_mailbox_block>({host, command_mailbox_block::kSize});
        };
        const auto source = block(from);
        const auto target = block(to);
        EXPECT_EQ(source.get(command_mailbox_block::block_number), number);
        EXPECT_EQ(source.get(command_mailbox_block::token), entry.get(command_queue_entry::token));
        std::memcpy(target.sub(command_mailbox_block::mailbox_data).data(),
                    source.get(command_mailbox_block::mailbox_data).data(), 512);
        from = source.get(command_mailbox_block::next_pointer) << 10;
        to = target.get(command_mailbox_block::next_pointer) << 10;
      }
      EXPECT_EQ(from, 0u) << "the chain ends with the message";
      return true;
    };
    std::vector<std::byte> in(size);
    for (std::size_t i = 0; i < size; ++i) in[i] = static_cast<std::byte>(i * 7);
    std::vector<std::byte> out(size);
    ASSERT_TRUE((*queue)->execute_bytes(in, out));
    EXPECT_TRUE(std::equal(in.begin() + 8, in.end(), out.begin() + 8)) << size;
  }
}

TEST_F(CommandQueueTest, PagesHaveASlotOfTheirOwn) {
  const auto queue = create();
  ASSERT_TRUE(queue);
  unsigned used = 0;
  device_.answer = [&](unsigned slot, util::MutableView<command_queue_entry>) {
    used = slot;
    return true;
  };
  Pages pages(host_, **queue);
  ASSERT_TRUE(pages.handle_request(3));
  EXPECT_EQ(used, 31u);
  EXPECT_EQ(pages.given(), 3u);
}

TEST_F(CommandQueueTest, ADeviceThatKeepsPagesIsReported) {
  const auto queue = create();
  ASSERT_TRUE(queue);
  answer_with(0);
  Pages pages(host_, **queue);
  ASSERT_TRUE(pages.handle_request(5));
  expect_failure(pages.reclaim_all(), "keeps 5 pages");
}

TEST_F(CommandQueueTest, APageThatWasNeverGivenIsNotTakenBack) {
  const auto queue = create();
  ASSERT_TRUE(queue);
  answer_with(0);
  Pages pages(host_, **queue);
  ASSERT_TRUE(pages.handle_request(1));
  std::array<std::byte, 16> output{};
  util::store_be32(output.data() + 8, 1);  // one page, whose address in the mailbox stays 0
  answer_with(0, output);
  expect_failure(pages.reclaim_all(), "was not given");
}

}  // namespace
}  // namespace softhca::driver::connectx
