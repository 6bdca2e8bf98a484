// The driver of src/driver/ with a device behind a vfio-user socket, as `softhca serve` offers it.
#include <gtest/gtest.h>

#include <thread>

#include "driver/jingzhao/queue_pair.h"
#include "driver/vfio_user_host.h"
#include "fabric/switch.h"
#include "jingzhao/world.h"
#include "util/log.h"
#include "vfio_user/serve_loop.h"
#include "vfio_user/served_function.h"
#include "vfio_user/server.h"

namespace softhca::jingzhao::test {
namespace {

/// A thread that serves one device on a switch.
class Served final : private vfio_user::Fabric {
 public:
  Served() {
    loop_->add(device_);
    loop_->set_fabric(*this);
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~Served() {
    loop_->stop();
    thread_.join();
    server_.reset();
  }
  const std::string& path() const { return path_; }

 private:
  bool has_frames() override { return network_.has_work(); }
  void deliver(std::size_t frames) override { network_.deliver(frames); }

  softhca::test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "jingzhao";
  fabric::Switch network_;
  std::unique_ptr<fabric::Port> port_ = network_.create_port("jingzhao");
  Device device_{{}, *port_};
  std::unique_ptr<vfio_user::ServeLoop> loop_ = vfio_user::ServeLoop::create().value();
  std::unique_ptr<vfio_user::Server> server_ =
      vfio_user::Server::listen(loop_->events(), device_, path_).value();
  std::thread thread_;
};

/// One end of a connection between two QPs of the device.
struct End {
  End(jz::Hca& hca, std::uint32_t pd)
      : memory(must(driver::DmaBuffer::allocate(hca.host(), 64 << 10))),
        key(must(jz::MemoryKey::of_queue(hca, pd, memory))),
        cq(must(jz::CompletionQueue::create(hca))),
        qp(must(jz::QueuePair::create(hca, {.send_cq = *cq, .receive_cq = *cq, .pd = pd}))) {}
  Sge piece(std::uint32_t length) const { return {memory.iova(), length, key->key()}; }
  Completion wait() {
    Completion done;
    const auto end = util::monotonic_now() + std::chrono::seconds(20);
    while (cq->poll({&done, 1}) == 0) {
      if (util::monotonic_now() > end) throw std::runtime_error("no completion");
    }
    return done;
  }
  driver::DmaBuffer memory;
  std::unique_ptr<jz::MemoryKey> key;
  std::unique_ptr<jz::CompletionQueue> cq;
  std::unique_ptr<jz::QueuePair> qp;
};

TEST(JingzhaoVfioUser, TheDriverMovesDataAsInOneProcess) {
  util::set_log_level(util::LogLevel::kError);
  Served served;
  constexpr auto kPatience = std::chrono::seconds(20);
  auto host = must(driver::VfioUserHost::connect(served.path(), {.timeout = kPatience}));
  auto hca = must(jz::Hca::open(*host, {.patience = kPatience}));
  EXPECT_EQ(hca->board_id(), DeviceOptions().board_id);
  const auto pd = hca->pds().allocate().value();
  End a(*hca, pd), b(*hca, pd);
  jz::Endpoint here;
  here.ipv4 = 0xC0A80A01;
  here.mac.bytes[0] = std::byte{2};
  must(a.qp->connect(here, {.qpn = b.qp->qpn(), .psn = 5, .at = here}, {.psn = 9}));
  must(b.qp->connect(here, {.qpn = a.qp->qpn(), .psn = 9, .at = here}, {.psn = 5}));
  for (unsigned i = 0; i != 20; ++i) {
    fill(a.memory.bytes(), i);
    const auto from = a.piece(20'000), to = b.piece(20'000);
    ASSERT_EQ(b.qp->post_receive({.id = i, .pieces = {&to, 1}}), PostStatus::kOk);
    ASSERT_EQ(a.qp->post_send({.id = 100 + i, .pieces = {&from, 1}}), PostStatus::kOk);
    const auto received = b.wait();
    EXPECT_EQ(received.status, WorkStatus::kSuccess);
    EXPECT_EQ(received.id, i);
    EXPECT_EQ(a.wait().id, 100 + i);
    ASSERT_TRUE(same(a.memory.bytes().first(20'000), b.memory.bytes().first(20'000))) << i;
  }
}

}  // namespace
}  // namespace softhca::jingzhao::test
