// A failed allocation ends only the session that it was for, whichever allocation it is. The
// server's loop serves a client whose n-th allocation fails, for each n, next to an honest client.
// SWEEP_STEP=1 tries every n; otherwise some of the later ones are left out.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "connectx/device.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "driver/vfio_user_host.h"
#include "fabric/switch.h"
#include "failing_new.h"
#include "loop_hca.h"
#include "sdxi/device.h"
#include "vfio_user/served_function.h"

namespace softhca {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using vfio_user::Client;

using neighbours::must;

class OneSwitch final : public vfio_user::Fabric {
 public:
  bool has_frames() override { return fabric.has_work(); }
  void deliver(std::size_t frames) override { fabric.deliver(frames); }
  fabric::Switch fabric;
};

/// A NIC, connected as `softhca serve` does it.
struct Nic {
  Nic(OneSwitch& fabric, const std::string& name)
      : port(fabric.fabric.create_port(name)),
        device({.name = name,
                .mac = wire::MacAddress::from_u64(0x020000000000 + name.size()),
                .node_guid = name.size()},
               *port) {
    device.dma().set_before_loss([this] { return port->settle(); });
  }
  std::unique_ptr<fabric::Port> port;
  connectx::Device device;
};

/// A guest with an HCA and two connected QPs.
struct HcaGuest : neighbours::LoopHca {
  static constexpr std::size_t kSize = 64 << 10;

  HcaGuest(const std::string& path, unsigned number, std::function<void()> pump)
      : LoopHca(must(driver::VfioUserHost::connect(path, {.timeout = 5s, .pump = std::move(pump)})),
                number, 2 * kSize, {.patience = 5s}),
        pair(make_pair()) {}

  /// Writes 64 KiB from one place to another. Throws if they do not arrive.
  void write(std::uint8_t value) {
    auto source = memory().first(kSize), target = memory().subspan(kSize, kSize);
    std::ranges::fill(source, std::byte{value});
    const auto from = piece(0, kSize);
    if (pair.from->post_send({.id = 1,
                              .opcode = driver::SendOpcode::kRdmaWrite,
                              .pieces = {&from, 1},
                              .remote_address = iova(kSize),
                              .rkey = key()}) != driver::PostStatus::kOk) {
      throw std::runtime_error("not posted");
    }
    driver::Completion done;
    for (const auto end = util::monotonic_now() + 10s; cq().poll({&done, 1}) == 0;) {
      std::uint32_t id;
      host().read_config(0, std::as_writable_bytes(std::span(&id, 1)));  // lets the server work
      if (host().lost()) throw std::runtime_error("the server has hung up");
      if (util::monotonic_now() > end) throw std::runtime_error("no completion");
    }
    if (done.status != driver::WorkStatus::kSuccess) throw std::runtime_error("it failed");
    if (!std::ranges::equal(source, target)) throw std::runtime_error("the bytes are not there");
  }

  neighbours::LoopPair pair;
};

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() {
    util::set_log_sink([this](util::LogLevel, std::string_view text) {
      told_ = told_ || text.find("out of memory") != std::string_view::npos;
    });
    loop_->set_fabric(fabric_);
    for (auto* function : functions()) loop_->add(*function);
    honest_ = std::make_unique<HcaGuest>(honest_path_, 1, [this] { loop_->turn(util::Time{}); });
  }
  ~OutOfMemory() override {
    honest_.reset();
    util::set_log_sink(nullptr);
  }
  std::vector<pcie::Function*> functions() { return {&honest_nic_.device, &nic_.device, &mover_}; }
  /// Runs one turn of the server. Its allocations may fail.
  std::function<void()> pump() {
    return [this] {
      const test::Watched watched;
      loop_->turn(util::Time{});
    };
  }
  void settle(const vfio_user::Server& server) {
    for (int i = 0; i < 1000 && (i < 5 || server.connected()); ++i) loop_->turn(util::Time{});
  }

  /// Runs `work` of a client once for each allocation of the server, with that allocation failing.
  void sweep(vfio_user::Server& server, const std::function<void()>& work) {
    if (!test::can_fail_allocations()) GTEST_SKIP() << "operator new is the sanitizer's";
    const char* step = std::getenv("SWEEP_STEP");
    work();  // warms up what is opened only once
    settle(server);
    const auto descriptors = test::open_fds();
    std::uint64_t tried = 0, ended = 0, n = 1;
    // Try each of the first 200: a client's messages make the server do few more.
    for (bool more = true; more; n += step != nullptr || n < 200 ? 1 : 1 + n / 20) {
      told_ = false;
      test::fail_allocation(n);
      bool failed = false;
      try {
        work();
      } catch (const std::exception&) {
        failed = true;
      }
      settle(server);
      more = test::allocation_failed();
      test::fail_allocation(0);
      ASSERT_FALSE(server.connected()) << n;
      ASSERT_TRUE(server.function().dma().mappings().empty()) << n;
      // If the server can do without the memory (a log line), nothing fails.
      ASSERT_TRUE(more || !failed) << n << ": it fails though nothing has failed";
      // Check only a few lines, because the log is rate-limited.
      if (failed && ended < 3) {
        ASSERT_TRUE(told_) << n << ": no reason is logged";
      }
      ASSERT_NO_THROW(honest_->write(static_cast<std::uint8_t>(n))) << n;
      ++tried;
      ended += failed ? 1 : 0;
    }
    std::printf("%llu allocations, %llu of them failed in turn, %llu sessions ended\n",
                static_cast<unsigned long long>(n), static_cast<unsigned long long>(tried),
                static_cast<unsigned long long>(ended));
    EXPECT_GT(ended, tried / 4);
    EXPECT_LE(test::open_fds_after(descriptors), descriptors) << "one is without an owner";
    ASSERT_NO_THROW(work()) << "the next one is served";
  }

  bool told_ = false;
  test::TemporaryDirectory directory_;
  std::string honest_path_ = directory_ / "honest", nic_path_ = directory_ / "nic",
              mover_path_ = directory_ / "mover";
  std::unique_ptr<vfio_user::ServeLoop> loop_ = vfio_user::ServeLoop::create().value();
  OneSwitch fabric_;
  Nic honest_nic_{fabric_, "honest"}, nic_{fabric_, "nic"};
  sdxi::FunctionGroup group_;
  sdxi::Device mover_{{}, group_};
  std::unique_ptr<vfio_user::Server>
      honest_server_ =
          vfio_user::Server::listen(loop_->events(), honest_nic_.device, honest_path_).value(),
      nic_server_ = vfio_user::Server::listen(loop_->events(), nic_.device, nic_path_).value(),
      mover_server_ = vfio_user::Server::listen(loop_->events(), mover_, mover_path_).value();
  std::unique_ptr<HcaGuest> honest_;
};

TEST_F(OutOfMemory, OfAClientsMessagesEndsItsSessionAlone) {
  sweep(*nic_server_, [this] {
    auto client = must(Client::connect(nic_path_, {.timeout = 1s, .pump = pump()}));
    (void)must(client.negotiate());
    const auto file = test::memory_file(64 << 10);
    const auto event = test::event();
    const auto check = [](int error) {
      if (error != 0) throw std::runtime_error("refused, or the server has hung up");
    };
    for (std::uint64_t i = 0; i != 20; ++i) {
      check(client.map_dma(i << 16, 64 << 10, file.get(), 0));
    }
    using namespace vfio_user::protocol;
    // A receiver that loses the second must not lose the third.
    check(client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 3, {},
                          std::array{event.get(), event.get(), event.get()}));
    check(client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, 0, 0));
    std::vector<std::byte> large(128 << 10);
    check(client.read_region(0, 0, large));
    check(client.write_region(0, 0x100000, std::span(large).first(100'000)));
    check(client.unmap_dma(0, 10 << 16));
    check(client.reset());
  });
}

TEST_F(OutOfMemory, OfAnHcasWorkEndsItsSessionAlone) {
  sweep(*nic_server_, [this] {
    HcaGuest guest(nic_path_, 2, pump());
    for (std::uint8_t i = 0; i != 3; ++i) guest.write(i);
  });
}

TEST_F(OutOfMemory, OfADataMoversWorkEndsItsSessionAlone) {
  sweep(*mover_server_, [this] {
    const auto host =
        must(driver::VfioUserHost::connect(mover_path_, {.timeout = 1s, .pump = pump()}));
    const auto function = must(driver::sdxi::Function::bring_up(*host));
    const auto context = must(function->make_context());
    const auto memory = must(driver::DmaBuffer::allocate(*host, 8192));
    memory.bytes()[0] = std::byte{7};
    const auto done = must(context->copy({memory.iova(4096)}, {memory.iova()}, 4096));
    must(context->wait(done));
    if (memory.bytes()[4096] != std::byte{7}) throw std::runtime_error("not copied");
    must(context->atomic(spec::sdxi::atomic_subtype::DSC_ATM_SWAP, {memory.iova()}, 8, 1));
  });
}

}  // namespace
}  // namespace softhca
