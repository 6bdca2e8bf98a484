// Serves one PCIe function on one UNIX socket. Any number of servers share an event loop.
//
// One client at a time: others wait in the socket's backlog until it has gone. Then the function is
// reset, so that the next client finds it as after power-on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "os/event_loop.h"
#include "pcie/function.h"
#include "util/result.h"
#include "vfio_user/session.h"

namespace softhca::vfio_user {

class Server {
 public:
  using Options = SessionOptions;

  /// Listens on `path`. A socket file without a listener is replaced. `loop` and `function` outlive
  /// the server.
  static util::Result<std::unique_ptr<Server>> listen(os::EventLoop& loop, pcie::Function& function,
                                                      std::string path,
                                                      const Options& options = {});
  /// Serves clients of `listener`, which already listens and does not block. The caller removes its
  /// file.
  static util::Result<std::unique_ptr<Server>> serve(os::EventLoop& loop, pcie::Function& function,
                                                     os::UniqueFd listener, const Options& options);
  /// Clients that may wait in the backlog while another one is served.
  static constexpr int kBacklog = 8;
  /// Ends the session, and removes the socket file if the server owns it.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& path() const { return path_; }
  pcie::Function& function() { return function_; }
  bool connected() const { return session_.has_value(); }
  os::Janitor& janitor() { return janitor_; }  ///< for tests

 private:
  Server(os::EventLoop& loop, pcie::Function& function, std::string path, const Options& options);

  util::Result<void> bind();
  util::Result<void> start();
  void fail();
  void accept();
  void begin_session(os::UniqueFd socket);
  /// Lets the session do `step`, which gets a budget and returns false if the session has ended.
  template <class Step>
  void visit(Step step);
  void end_session();
  void end_session(const char* why) {
    note(why);
    end_session();
  }
  /// True if another client may connect: enough descriptors of earlier clients have been released.
  bool has_room() const { return janitor_.pending_descriptors() < options_.max_eventfds; }
  /// Watches for the next client, now or when has_room().
  void wait_for_client();
  /// Logs events of clients, a few lines at a time.
  void note(const char* what);

  os::EventLoop& loop_;
  pcie::Function& function_;
  std::string path_;  ///< empty: the server does not own the socket's file
  Options options_;
  os::UniqueFd listener_;
  std::optional<os::EventLoop::Notice> more_;  ///< the session has queued messages
  std::optional<os::EventLoop::Notice> lost_;  ///< the session is lost
  os::EventLoop::Notice gone_;                 ///< the janitor has released something
  os::Janitor janitor_;
  std::optional<Session> session_;
  /// The session has handled something of its client and goes on. Another server that looks for a
  /// listener at this path connects and sends nothing.
  bool has_client_ = false;
  std::uint32_t watched_ = 0;  ///< events for which the session's socket is watched
  util::RateLimiter notes_{3, std::chrono::seconds(10)};
  ClientNotes client_notes_;
  RemoteWaits waits_;
  util::RateLimiter client_lines_{10, std::chrono::seconds(10)};  ///< connects and disconnects
};

}  // namespace softhca::vfio_user
