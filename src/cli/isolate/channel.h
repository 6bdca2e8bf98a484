// Messages between the server and one of its processes, over a pair of sockets: 4 bytes of length,
// 4 bytes that say which question it belongs to, both in the machine's order, and text.
//
// Neither side waits for the other, and neither trusts the other's lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "util/event_loop.h"
#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::cli {

class Channel {
 public:
  static constexpr std::size_t kRequestMax = 64 << 10;
  static constexpr std::size_t kAnswerMax = 1 << 20;

  struct Handlers {
    /// A message has come. Must not destroy the channel.
    std::function<void(std::uint32_t number, std::string_view text)> message;
    /// Nothing comes any more: the other side is gone, or has said what is no message.
    std::function<void(bool nonsense)> end;
  };

  /// Of messages of at most `receive_max` bytes. `loop` outlives this.
  Channel(util::EventLoop& loop, vfio_user::UniqueFd socket, std::size_t receive_max,
          Handlers handlers);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  util::Result<void> start();
  /// What the socket does not take at once follows when it does. False if the other side has left
  /// too much unread.
  bool send(std::uint32_t number, std::string_view text);

 private:
  void handle(std::uint32_t events);
  /// These are false at the end.
  bool receive();
  bool flush();
  void end();

  util::EventLoop& loop_;
  vfio_user::UniqueFd socket_;
  const std::size_t receive_max_;
  Handlers handlers_;
  std::string received_;
  std::string unsent_;
  std::size_t sent_ = 0;  ///< of unsent_
  bool watching_writes_ = false;
  bool nonsense_ = false;
  bool ended_ = false;
};

}  // namespace softhca::cli
