// The HCR commands of JingZhao's driver against a device that answers none.
#include <gtest/gtest.h>

#include <cstring>

#include "driver/in_process_host.h"
#include "driver/jingzhao/command_interface.h"
#include "driver/pci.h"
#include "spec/jingzhao/command.h"

namespace softhca::driver::jingzhao {
namespace {

constexpr pcie::ConfigSpace::Identity kSilentIdentity{.vendor_id = 0x10ee,
                                                      .device_id = 0x7021,
                                                      .subsystem_vendor_id = 0,
                                                      .subsystem_id = 0,
                                                      .class_code = 0x020000,
                                                      .revision_id = 0};
constexpr std::array kSilentBars{
    pcie::Bar{.size = 1 << 20, .is_64bit = true, .prefetchable = true}};

/// Memory behind a BAR: a command's `go` stays set.
class SilentDevice final : public pcie::Function {
 public:
  SilentDevice()
      : Function("silent", kSilentIdentity, kSilentBars,
                 {.vectors = 1, .bar = 0, .table_offset = 0xf8000, .pba_offset = 0xf9000}) {}
  util::Time run_device(util::Time) override { return util::kNever; }
  unsigned writes = 0;

 private:
  void read_register(unsigned, std::uint64_t offset, std::span<std::byte> out) override {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }
  void write_register(unsigned, std::uint64_t offset, std::span<const std::byte> in) override {
    std::memcpy(bytes_.data() + offset, in.data(), in.size());
    ++writes;
  }
  void reset_device() override {}

  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 20);
};

/// A host whose connection to the device can break.
class BreakableHost final : public InProcessHost {
 public:
  using InProcessHost::InProcessHost;
  bool lost() const override { return is_lost; }
  bool is_lost = false;
};

class HcrCommands : public ::testing::Test {
 protected:
  HcrCommands() {
    enable_bus_master(host_);
    auto made = CommandInterface::create(host_, std::chrono::seconds(1));
    if (!made) throw std::runtime_error(made.error().message);
    commands_ = std::move(*made);
  }
  std::string failure() {
    const auto done = commands_->run({.op = spec::command_opcode::QUERY_ADAPTER});
    return done ? "" : done.error().message;
  }

  util::Time now_{};
  util::Time lost_at_ = util::kNever;
  SilentDevice device_;
  BreakableHost host_{device_,
                      {.progress =
                           [this] {
                             now_ += std::chrono::milliseconds(1);
                             host_.is_lost = now_ >= lost_at_;
                           },
                       .clock = [this] { return now_; }}};
  std::unique_ptr<CommandInterface> commands_;
};

TEST_F(HcrCommands, ADeviceWithoutAnswerIsGivenUpAndNothingMoreIsSent) {
  EXPECT_EQ(failure(), "QUERY_ADAPTER: the device does not answer");
  const auto writes = device_.writes;
  EXPECT_EQ(failure(), "QUERY_ADAPTER: an earlier command was never completed");
  EXPECT_EQ(device_.writes, writes);
}

TEST_F(HcrCommands, ADeviceThatIsGoneMeanwhileIsNotWaitedFor) {
  lost_at_ = now_ + std::chrono::milliseconds(5);
  EXPECT_EQ(failure(), "the device is gone");
  EXPECT_LT(now_.time_since_epoch(), std::chrono::milliseconds(10));
}

TEST_F(HcrCommands, ADeviceThatIsGoneAfterACommandFailedIsReportedAsSuch) {
  EXPECT_NE(failure(), "the device is gone");
  host_.is_lost = true;
  const auto writes = device_.writes;
  EXPECT_EQ(failure(), "the device is gone");
  EXPECT_EQ(device_.writes, writes);
}

}  // namespace
}  // namespace softhca::driver::jingzhao
