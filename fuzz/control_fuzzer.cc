// Clients of a server's control socket that do anything.
//
// The input is a script for a server with two SDXI functions and a NIC. Clients connect, send
// pieces of requests, stop in the middle, read part of their answer or nothing, and leave. Whatever
// they do, every answer begins with "ok" or "error: ", and a well-behaved client after them gets
// its answer.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "connectx/device.h"
#include "control/control_socket.h"
#include "fabric/switch.h"
#include "oracle.h"
#include "os/unix_socket.h"
#include "script.h"
#include "sdxi/device.h"
#include "sdxi/group.h"
#include "server/control.h"
#include "util/log.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::Script;

bool is_answer(std::string_view text) {
  return (text.starts_with("ok\n") || text.starts_with("error: ")) && text.ends_with('\n');
}

/// The server. It is shared by all inputs, as a real one outlives its clients.
class Server {
 public:
  Server() {
    util::set_log_sink([](util::LogLevel, std::string_view) {});
    auto name = (std::filesystem::temp_directory_path() / "softhca-fuzz-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    path_ = directory_ / "control";
    loop_ = *os::EventLoop::create();
    control_ = std::make_unique<server::ServerControl>(*loop_, targets_);
    listen();
  }
  ~Server() {
    socket_.reset();
    std::filesystem::remove_all(directory_);
  }

  void play(Script script) {
    while (!script.empty()) play_step(script);
    for (auto& client : clients_) client.reset();
    control_->answer("fault clear", {.send = [](const std::string&) {}});
    expect_service();
    // Threads of the socket close its descriptors. Its end waits for them.
    socket_.reset();
    listen();
  }

 private:
  static constexpr std::size_t kClients = 20;  // more than the server accepts at a time

  void listen() {
    socket_ = *control::ControlSocket::listen(
        *loop_, path_, [this](std::string_view line, const control::ControlSocket::Reply& reply) {
          const auto checked = [reply](const std::string& answer) {
            check(is_answer(answer));
            reply(answer);
          };
          control_->answer(line, {.send = checked, .is_wanted = reply.is_wanted});
        });
  }

  void play_step(Script& script) {
    const auto action = script.byte();
    auto& client = clients_[script.byte() % kClients];
    switch (action % 6) {
      case 0:
        client = connect();
        break;
      case 1:
        send(client, script.text(script.byte()));
        break;
      case 2:
        send(client, std::string(script.text(script.byte())) + "\n");
        break;
      case 3:
        if (client) (void)receive(client, script.byte() * 64 + 1);
        break;
      case 4:
        if (client) ::shutdown(client.get(), script.byte() % 3);
        break;
      case 5:
        client.reset();
        break;
    }
    if (action & 0x80) serve();
  }

  void serve() {
    waiting_ = 0;
    while (true) {
      const fuzz::Turn turn;
      const auto called = loop_->run_once(util::Time{});
      if (called == 0 && loop_->budget().done() == 0) return;
    }
  }

  os::UniqueFd connect() {
    // The kernel's backlog is full. The next connection would block this thread, which also runs
    // the server.
    if (++waiting_ == control::ControlSocket::kConnectionsMax) serve();
    auto fd = os::connect_unix(path_, "client");
    check(fd.has_value());
    ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    return *std::move(fd);
  }

  static void send(const os::UniqueFd& client, std::string_view text) {
    if (client) (void)::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }

  static std::string receive(const os::UniqueFd& client, std::size_t most) {
    std::string text(most, '\0');
    const auto size = ::recv(client.get(), text.data(), text.size(), 0);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

  /// A well-behaved client gets the answer to its request.
  void expect_service() {
    serve();
    const auto client = connect();
    send(client, "fault list\n");
    serve();
    check(receive(client, 64) == "ok\n");
  }

  fabric::Switch switch_;
  std::unique_ptr<fabric::Port> port_ = switch_.create_port("port");
  sdxi::FunctionGroup group_;
  sdxi::Device first_{{.name = "a"}, group_};
  sdxi::Device second_{{.name = "b"}, group_};
  connectx::Device nic_{{.name = "nic"}, *port_};
  server::ControlTargets targets_{{&first_, &second_, &nic_}, &group_.faults()};
  std::filesystem::path directory_;
  std::string path_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<server::ServerControl> control_;
  std::unique_ptr<control::ControlSocket> socket_;
  std::array<os::UniqueFd, kClients> clients_;
  std::size_t waiting_ = 0;  ///< pending connections, at most
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Server server;
  return fuzz::run_input([&] { server.play(Script(data, size)); });
}
