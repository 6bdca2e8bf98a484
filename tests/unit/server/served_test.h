// Fixture of tests that need a server: the program and one or two guests' clients.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "driver/vfio_user_host.h"
#include "eventually.h"
#include "loop_hca.h"
#include "served_program.h"

namespace softhca::server {

using neighbours::must;

/// Waits for the server to listen.
inline std::unique_ptr<driver::VfioUserHost> connect_host(const std::string& path) {
  const auto connect = [&path] {
    return driver::VfioUserHost::connect(path, {.timeout = std::chrono::seconds(20)});
  };
  auto host = connect();
  eventually([&] { return host || (host = connect()); });
  return must(std::move(host));
}

/// A guest with one HCA and one queue pair.
struct HcaClient : neighbours::LoopHca {
  static constexpr std::size_t kMemory = 256 << 10;

  /// `number` selects its address.
  HcaClient(const std::string& path, unsigned number)
      : LoopHca(connect_host(path), number, kMemory, {.patience = std::chrono::seconds(20)}),
        qp(make_qp()) {}

  void connect(const HcaClient& peer) {
    must(qp->connect(peer.address_of(*peer.qp), {.path_mtu = 4096}));
  }
  /// Writes `size` bytes from the start of this guest's memory to the start of the peer's, and
  /// waits for the completion.
  driver::WorkStatus write(const HcaClient& peer, std::size_t size, util::Duration patience) {
    const auto from = piece(0, size);
    const auto posted = qp->post_send({.id = 1,
                                       .opcode = driver::SendOpcode::kRdmaWrite,
                                       .pieces = {&from, 1},
                                       .remote_address = peer.iova(),
                                       .rkey = peer.key()});
    if (posted != driver::PostStatus::kOk) throw std::runtime_error("post_send");
    driver::Completion done;
    for (const auto end = util::monotonic_now() + patience; cq().poll({&done, 1}) == 0;) {
      if (host().lost()) throw std::runtime_error("the server has gone");
      if (util::monotonic_now() > end) throw std::runtime_error("no completion");
      std::this_thread::yield();
    }
    return done.status;
  }

  std::unique_ptr<driver::connectx::QueuePair> qp;
};

/// A guest with one SDXI function and one context.
struct Mover {
  explicit Mover(const std::string& path)
      : host(connect_host(path)),
        function(
            must(driver::sdxi::Function::bring_up(*host, {.patience = std::chrono::seconds(20)}))),
        context(must(function->make_context())) {}

  driver::DmaBuffer memory(std::byte value, std::size_t size = 4096) {
    auto buffer = must(driver::DmaBuffer::allocate(*host, size));
    std::ranges::fill(buffer.bytes(), value);
    return buffer;
  }
  /// Copies a page and checks the copy. False also if the copy operation fails.
  bool copy() {
    auto from = memory(std::byte{7}), to = memory(std::byte{0});
    const auto done = context->copy({to.iova()}, {from.iova()}, 4096);
    return done && context->wait(*done) && std::ranges::equal(to.bytes(), from.bytes());
  }

  std::unique_ptr<driver::VfioUserHost> host;
  std::unique_ptr<driver::sdxi::Function> function;
  std::unique_ptr<driver::sdxi::Context> context;
};

/// A server with --isolate.
class IsolateTest : public ::testing::Test {
 protected:
  IsolateTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~IsolateTest() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void start(const std::vector<std::string>& devices, std::vector<std::string> options = {}) {
    options.insert(options.begin(), "--isolate");
    server_.emplace(devices, options);
  }

  std::string socket(std::size_t device) const { return server_->socket(device); }
  std::string ask(const std::string& request) const { return server_->ask(request); }
  std::string log() const { return server_->log(); }
  nlohmann::json processes() const { return server_->processes(); }
  pid_t pid_of(const std::string& name) const { return server_->pid_of(name); }
  bool wait_for_start(const std::string& name, unsigned starts) const {
    return server_->wait_for_start(name, starts);
  }
  void signal_process(const std::string& name, int number) const {
    const auto pid = pid_of(name);
    ASSERT_GT(pid, 0) << name;
    ASSERT_EQ(::kill(pid, number), 0);
  }

  std::filesystem::path directory_;  ///< for files of the test
  std::optional<ServedProgram> server_;
};

}  // namespace softhca::server
