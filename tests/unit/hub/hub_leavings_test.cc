// Descriptors whose last close never returns, which a process leaves to the hub. The hub's loop
// never closes them, so another process joins in time.
#include <gtest/gtest.h>

#include <thread>

#include "hub/hub.h"
#include "hub/join.h"
#include "os/slow_close.h"
#include "vfio_user/served_function.h"

namespace softhca::hub {
namespace {

class HubLeavings : public ::testing::Test {
 protected:
  HubLeavings() {
    thread_ = std::thread([this] {
      while (!loop_->stopped()) loop_->run_once(util::kNever);
    });
  }
  ~HubLeavings() override {
    slow_.release();
    loop_->stop();
    thread_.join();
  }
  /// Sends `bytes`, the last one with the descriptor that closes slowly.
  void send_slow(const Joined& from, std::string_view bytes) {
    held_.hold([&] {
      const auto all = std::as_bytes(std::span(bytes));
      for (const auto& byte : all.first(all.size() - 1)) {
        ASSERT_EQ(::send(from.socket.get(), &byte, 1, 0), 1);
      }
      test::send_with_fds(from.socket.get(), all.last(1), std::array{slow_.fd.get()});
      slow_.fd.reset();
    });
  }
  void expect_joins() {
    const auto joined = join(path_);
    EXPECT_TRUE(joined) << joined.error().message;
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "hub";
  test::SlowClose slow_{1000};
  std::unique_ptr<os::EventLoop> loop_ = os::EventLoop::create().value();
  test::HeldLoop held_{*loop_};
  std::unique_ptr<Hub> hub_ = Hub::create(*loop_, path_, {}).value();
  std::thread thread_;
};

TEST_F(HubLeavings, AnUnexpectedDescriptorDelaysNoOther) {
  const auto hostile = join(path_);
  ASSERT_TRUE(hostile);
  send_slow(*hostile, "w");
  expect_joins();
}

TEST_F(HubLeavings, AnUnreadDescriptorDelaysNoOther) {
  const auto hostile = join(path_);
  ASSERT_TRUE(hostile);
  send_slow(*hostile, "talk");  // is put out for the first byte
  expect_joins();
}

}  // namespace
}  // namespace softhca::hub
