// Serves one PCIe function on one UNIX socket. Any number of servers share an event loop.
//
// One client at a time: others wait in the socket's backlog until it has gone. Then the function
// is reset, and the next one finds it as after power-on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "pcie/function.h"
#include "util/event_loop.h"
#include "util/result.h"
#include "vfio_user/session.h"

namespace softhca::vfio_user {

class Server {
 public:
  using Options = SessionOptions;

  /// Listens on `path`. A socket file that nobody listens on any more is replaced. `loop` and
  /// `function` outlive the server.
  static util::Result<std::unique_ptr<Server>> listen(util::EventLoop& loop,
                                                      pcie::Function& function, std::string path,
                                                      const Options& options = {});
  /// Serves those who connect to `listener`, which listens already and does not wait. Its file is
  /// somebody else's to remove.
  static util::Result<std::unique_ptr<Server>> serve(util::EventLoop& loop,
                                                     pcie::Function& function, UniqueFd listener,
                                                     const Options& options);
  /// Clients that may wait while another one is served.
  static constexpr int kBacklog = 8;
  /// Ends the session and removes the socket file, if it is ours.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& path() const { return path_; }
  pcie::Function& function() { return function_; }
  bool connected() const { return session_.has_value(); }

 private:
  Server(util::EventLoop& loop, pcie::Function& function, std::string path, const Options& options);

  util::Result<void> bind();
  util::Result<void> start();
  void fail();
  void accept();
  void begin_session(UniqueFd socket);
  /// Lets the session do `step`, which gets a budget and returns false at the session's end.
  template <class Step>
  void visit(Step step);
  void end_session();
  void end_session(const char* why) {
    note(why);
    end_session();
  }
  /// True if another client may come: what the last ones left behind is not all that there may be.
  bool has_room() const { return janitor_.pending_descriptors() < options_.max_eventfds; }
  /// Looks for the next client, now or when there is room.
  void wait_for_client();
  /// What becomes of clients, a few lines at a time.
  void note(const char* what);

  util::EventLoop& loop_;
  pcie::Function& function_;
  std::string path_;  ///< empty: the socket's file is not ours
  Options options_;
  UniqueFd listener_;
  std::optional<util::EventLoop::Notice> more_;  ///< the session has messages that it has received
  std::optional<util::EventLoop::Notice> lost_;  ///< its memory has gone
  util::EventLoop::Notice gone_;                 ///< the janitor has taken something away
  Janitor janitor_;
  std::optional<Session> session_;
  std::uint32_t watched_ = 0;  ///< events that the session's socket is watched for
  util::RateLimiter notes_{3, std::chrono::seconds(10)};
  ClientNotes client_notes_;
  util::RateLimiter comings_{10, std::chrono::seconds(10)};  ///< and goings
};

}  // namespace softhca::vfio_user
