// A hub and two processes in one thread, under a clock of the test.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/hub.h"
#include "hub/uplink.h"
#include "wire/ib_header.h"

namespace softhca::hub {

/// Bytes that a device may send in one turn.
inline constexpr std::size_t kTurn = 1 << 20;
/// More frames than a link needs to be set up.
inline constexpr int kMany = 100;

/// A process: its switch connects a station and the hub.
class Process {
 public:
  Process(Joined joined, util::TimeSource clock,
          const std::optional<Sharing>& sharing = std::nullopt)
      : mac_(wire::MacAddress::from(std::as_bytes(std::span(joined.mac))).to_u64()),
        station_(fabric_.create_port("station")),
        link_(fabric_.create_port("hub"), std::move(joined), std::move(clock), sharing) {
    station_->set_receiver(&receiver_);
    receiver_.then = [this](const wire::Frame& frame) {
      if (const auto packet = wire::IbPacket::parse(frame)) packets_.push_back(*packet);
    };
  }
  std::uint64_t mac() const { return mac_; }
  Uplink& link() { return link_; }
  fabric::Switch& fabric() { return fabric_; }

  void send(std::uint64_t to, std::string_view text) { send(fabric::frame_of(to, mac_, text)); }
  void send(const wire::Frame& frame) {
    station_->transmit(frame);
    turn();
  }
  /// Sends without receiving.
  void push(std::uint64_t to, std::string_view text) { push(fabric::frame_of(to, mac_, text)); }
  void push(const wire::Frame& frame) {
    station_->transmit(frame);
    fabric_.deliver(fabric::kAllFrames);
    link_.settle();
  }
  void turn() {
    link_.receive(fabric::kAllFrames);
    fabric_.deliver(fabric::kAllFrames);
    link_.settle();
  }
  /// The InfiniBand packets that have arrived, with whichever CRC their link needs.
  std::vector<wire::IbPacket> take_packets() {
    turn();
    return std::exchange(packets_, {});
  }
  std::vector<std::string> take() {
    turn();
    return std::exchange(receiver_.texts, {});
  }
  bool is_woken() const {
    pollfd bell{.fd = link_.wake(), .events = POLLIN, .revents = 0};
    return ::poll(&bell, 1, 0) == 1;
  }

 private:
  const std::uint64_t mac_;
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> station_;
  fabric::Recorder receiver_;
  std::vector<wire::IbPacket> packets_;
  Uplink link_;
};

class UplinkTest : public testing::Test {
 protected:
  UplinkTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    start({});
  }
  ~UplinkTest() override {
    a_.reset();
    b_.reset();
    hub_.reset();
    std::filesystem::remove_all(directory_);
  }
  void start(Hub::Options options) {
    a_.reset();
    b_.reset();
    hub_.reset();
    loop_ = *os::EventLoop::create();
    options.clock = clock_;
    hub_ = *Hub::create(*loop_, path(), options);
    a_ = join_hub();
    b_ = join_hub();
    run_all();
  }
  std::string path() const { return directory_ / "hub"; }
  /// `shares`: the process shares addresses.
  std::unique_ptr<Process> join_hub(bool shares = false) {
    std::optional<util::Result<Joined>> joined;
    std::optional<Sharing> sharing;
    std::atomic<bool> done = false;
    std::thread joins([&] {
      joined.emplace(join(path()));
      if (shares) sharing = share(**joined).value();
      done = true;
    });
    while (!done) run_hub();
    joins.join();
    return std::make_unique<Process>(*std::move(*joined), clock_, sharing);
  }
  void run_hub() {
    for (int i = 0; i < 20; ++i) loop_->run_once(util::Time::min());
  }
  void run_all() {
    for (int i = 0; i < 5; ++i) {
      run_hub();
      if (a_ != nullptr) a_->turn();
      if (b_ != nullptr) b_->turn();
    }
  }
  void make_link() {
    for (int i = 0; i < kMany; ++i) a_->send(b_->mac(), "hello");
    run_all();
    (void)b_->take();
    ASSERT_EQ(a_->link().links(), 1u);
    ASSERT_EQ(b_->link().links(), 1u);
  }

  /// A clock reading takes a microsecond. Nothing else takes time.
  util::Time now_{std::chrono::hours(1)};
  const util::TimeSource clock_ = [this] { return now_ += std::chrono::microseconds(1); };
  std::filesystem::path directory_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<Hub> hub_;
  std::unique_ptr<Process> a_, b_;
};

}  // namespace softhca::hub
