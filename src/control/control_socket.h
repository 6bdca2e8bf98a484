// The control socket of a server or a run. A client sends one line, and reads the answer until the
// connection is closed. No input can stop the process.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "os/event_loop.h"
#include "os/janitor.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::control {

class ControlSocket {
 public:
  /// Sends the answer to a request: once, at any time. The client may have gone.
  struct Reply {
    std::function<void(std::string answer)> send;
    /// Whether the client still waits; empty: yes.
    std::function<bool()> is_wanted = {};

    void operator()(std::string answer) const { send(std::move(answer)); }
    bool wanted() const { return !is_wanted || is_wanted(); }
  };
  /// Handles a request, without its line end. It calls `reply` now or later.
  using Handler = std::function<void(std::string_view request, const Reply& reply)>;

  static constexpr std::size_t kRequestMax = 4096;
  /// Maximum simultaneous connections; a further one replaces the oldest.
  static constexpr std::size_t kConnectionsMax = 16;

  /// Listens on `path`, which only this process's user may open. `loop` must outlive this.
  static util::Result<std::unique_ptr<ControlSocket>> listen(os::EventLoop& loop, std::string path,
                                                             Handler handler);
  /// Ends all connections and removes the socket file.
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

 private:
  struct Connection {
    os::UniqueFd fd;
    std::string request;
    std::string answer;
    std::size_t sent = 0;
    bool asking = false;  ///< the request is complete, its answer is not
    bool answering = false;
    std::uint64_t number = 0;
  };
  using Place = std::list<Connection>::iterator;

  ControlSocket(os::EventLoop& loop, std::string path, Handler handler)
      : loop_(loop), path_(std::move(path)), handler_(std::move(handler)) {}

  util::Result<void> start();
  void accept();
  void handle(Place at);
  bool is_asking(std::uint64_t number) const;
  /// Sends the answer to connection `number`, if it still exists.
  void answer(std::uint64_t number, std::string text);
  /// False if the connection must be closed.
  bool receive(Connection& connection);
  bool send(Connection& connection);
  void end(Place at);

  os::EventLoop& loop_;
  std::string path_;
  Handler handler_;
  os::UniqueFd listener_;
  os::Janitor janitor_;
  std::list<Connection> connections_;  ///< oldest first
  std::uint64_t last_number_ = 0;
  std::shared_ptr<ControlSocket*> self_;  ///< lets answers detect that this has been destroyed
};

/// Client side: sends a request, and returns the whole answer.
util::Result<std::string> ask_control(const std::string& path, std::string_view request);

}  // namespace softhca::control
