// The control socket of a running server: a client sends one line and reads the answer until the
// connection ends. Whatever comes in, the server goes on.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "util/event_loop.h"
#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::cli {

class ControlSocket {
 public:
  /// Takes the answer to a request, once, at any time. Whoever asked may have gone.
  struct Reply {
    std::function<void(std::string answer)> send;
    /// Whether somebody still waits for it; empty: yes.
    std::function<bool()> is_wanted = {};

    void operator()(std::string answer) const { send(std::move(answer)); }
    bool wanted() const { return !is_wanted || is_wanted(); }
  };
  /// Gets a request, which has no line end, and answers by `reply`, now or later.
  using Handler = std::function<void(std::string_view request, const Reply& reply)>;

  static constexpr std::size_t kRequestMax = 4096;
  /// Connections at the same time; one more takes the place of the oldest.
  static constexpr std::size_t kConnectionsMax = 16;

  /// Listens on `path`, which only the user of this process may open. `loop` outlives this.
  static util::Result<std::unique_ptr<ControlSocket>> listen(util::EventLoop& loop,
                                                             std::string path, Handler handler);
  /// Ends all connections and removes the socket file.
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

 private:
  struct Connection {
    vfio_user::UniqueFd fd;
    std::string request;
    std::string answer;
    std::size_t sent = 0;
    bool asking = false;  ///< the request is whole, its answer is to come
    bool answering = false;
    std::uint64_t number = 0;
  };
  using Place = std::list<Connection>::iterator;

  ControlSocket(util::EventLoop& loop, std::string path, Handler handler)
      : loop_(loop), path_(std::move(path)), handler_(std::move(handler)) {}

  util::Result<void> start();
  void accept();
  void handle(Place at);
  bool is_asking(std::uint64_t number) const;
  /// The answer for connection `number`, if it is still there.
  void answer(std::uint64_t number, std::string text);
  /// False if the connection is to end.
  bool receive(Connection& connection);
  bool send(Connection& connection);
  void end(Place at);

  util::EventLoop& loop_;
  std::string path_;
  Handler handler_;
  vfio_user::UniqueFd listener_;
  std::list<Connection> connections_;  ///< the oldest first
  std::uint64_t last_number_ = 0;
  std::shared_ptr<ControlSocket*> self_;  ///< for answers that come after this has gone
};

/// The client's side: the whole answer.
util::Result<std::string> ask_control(const std::string& path, std::string_view request);

}  // namespace softhca::cli
