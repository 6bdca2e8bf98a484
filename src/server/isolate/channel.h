// Messages between the server and one of its processes, over a socket pair: 4 bytes of length and 4
// bytes of the question's number, both in host byte order, then text.
//
// Neither side waits for the other, and neither trusts the other's lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "os/event_loop.h"
#include "os/janitor.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::server {

class Channel {
 public:
  static constexpr std::size_t kRequestMax = 64 << 10;
  static constexpr std::size_t kAnswerMax = 1 << 20;

  struct Handlers {
    /// Called for each message. Must not destroy the channel.
    std::function<void(std::uint32_t number, std::string_view text)> message;
    /// Called at the end: the peer has gone, or has sent a malformed message (`nonsense`).
    std::function<void(bool nonsense)> end;
  };

  /// Accepts messages of at most `receive_max` bytes. `loop` and `janitor`, which gets descriptors
  /// that the peer sends, must outlive this.
  Channel(os::EventLoop& loop, os::UniqueFd socket, std::size_t receive_max, os::Janitor& janitor,
          Handlers handlers);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  util::Result<void> start();
  /// Queues what the socket does not take now. False if the peer has left too much unread.
  bool send(std::uint32_t number, std::string_view text);

 private:
  void handle(std::uint32_t events);
  /// False at the end.
  bool receive();
  bool flush();
  void end();

  os::EventLoop& loop_;
  os::Janitor& janitor_;
  os::UniqueFd socket_;
  const std::size_t receive_max_;
  Handlers handlers_;
  std::string received_;
  std::string unsent_;
  std::size_t sent_ = 0;  ///< of unsent_
  bool watching_writes_ = false;
  bool nonsense_ = false;
  bool ended_ = false;
};

}  // namespace softhca::server
