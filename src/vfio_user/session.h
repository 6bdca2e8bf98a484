// One client's connection to one function: takes its messages, does what they ask, replies.
//
// The memory, interrupts and state that a client gave a function end with its session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pcie/function.h"
#include "util/log.h"
#include "vfio_user/capabilities.h"
#include "vfio_user/client_interrupts.h"
#include "vfio_user/client_memory.h"
#include "vfio_user/message_stream.h"
#include "vfio_user/remote_memory.h"
#include "vfio_user/verdict.h"

namespace softhca::vfio_user {

struct SessionOptions {
  /// How long a DMA_READ or DMA_WRITE waits for the client, and a reply for room in the socket.
  util::Duration reply_timeout = std::chrono::milliseconds(500);
};

class Session {
 public:
  /// `queued`: see ClientRemoteMemory.
  Session(pcie::Function& function, UniqueFd socket, int queued, const SessionOptions& options);
  /// Resets the function and takes all of the client's memory and interrupts away from it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int fd() const { return stream_.fd(); }

  /// Receives once and handles every message that is whole. False if the connection is at its end.
  bool handle_readable();
  /// Handles the messages that were received while a DMA access waited for its reply.
  bool handle_queued();

 private:
  void handle(const Message& message);
  Verdict check_header(const Message& message) const;
  Verdict dispatch(const Message& message);

  Verdict version(const Message& message);
  Verdict dma_map(const Message& message);
  Verdict dma_unmap(const Message& message);
  Verdict device_get_info(const Message& message);
  Verdict device_get_region_info(const Message& message);
  Verdict device_get_region_io_fds(const Message& message);
  Verdict device_get_irq_info(const Message& message);
  Verdict device_set_irqs(const Message& message);
  Verdict region_read(const Message& message);
  Verdict region_write(const Message& message);
  Verdict region_write_multi(const Message& message);
  Verdict device_reset(const Message& message);

  template <class T>
  void put_reply(const T& structure);
  void send_reply(const protocol::Header& command, const Verdict& verdict);
  void note_refusal(const Message& message, const Verdict& verdict);
  void end(const char* reason);

  pcie::Function& function_;
  MessageStream stream_;
  ClientRemoteMemory remote_;
  ClientMemory memory_;
  ClientInterrupts interrupts_;
  bool negotiated_ = false;
  bool ended_ = false;
  std::vector<std::byte> reply_;  ///< payload of the reply in the making
  int reply_fd_ = -1;             ///< goes with it; not ours
  std::string version_reply_;
  util::RateLimiter notes_{10, std::chrono::seconds(1)};
};

}  // namespace softhca::vfio_user
