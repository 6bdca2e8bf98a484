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
  /// Makes the answer to a request, which has no line end.
  using Handler = std::function<std::string(std::string_view request)>;
  /// Takes the answer to a request, once, at any time. Whoever asked may have gone.
  using Reply = std::function<void(std::string answer)>;
  /// Gets a request and answers by `reply`, now or later.
  using LaterHandler = std::function<void(std::string_view request, Reply reply)>;

  static constexpr std::size_t kRequestMax = 4096;
  /// Connections at the same time; one more takes the place of the oldest.
  static constexpr std::size_t kConnectionsMax = 16;

  /// Listens on `path`, which only the user of this process may open. `loop` outlives this.
  static util::Result<std::unique_ptr<ControlSocket>> listen(util::EventLoop& loop,
                                                             std::string path, Handler handler);
  static util::Result<std::unique_ptr<ControlSocket>> listen_later(util::EventLoop& loop,
                                                                   std::string path,
                                                                   LaterHandler handler);
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

  ControlSocket(util::EventLoop& loop, std::string path, LaterHandler handler)
      : loop_(loop), path_(std::move(path)), handler_(std::move(handler)) {}

  util::Result<void> start();
  void accept();
  void handle(Place at);
  /// The answer for connection `number`, if it is still there.
  void answer(std::uint64_t number, std::string text);
  /// False if the connection is to end.
  bool receive(Connection& connection);
  bool send(Connection& connection);
  void end(Place at);

  util::EventLoop& loop_;
  std::string path_;
  LaterHandler handler_;
  vfio_user::UniqueFd listener_;
  std::list<Connection> connections_;  ///< the oldest first
  std::uint64_t last_number_ = 0;
  std::shared_ptr<ControlSocket*> self_;  ///< for answers that come after this has gone
};

/// The client's side: the whole answer.
util::Result<std::string> ask_control(const std::string& path, std::string_view request);

}  // namespace softhca::cli
