// One client's connection to one function: takes its messages, does what they ask, replies.
//
// The memory, interrupts and state that a client gave a function end with its session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pcie/function.h"
#include "util/event_loop.h"
#include "util/log.h"
#include "util/work_budget.h"
#include "vfio_user/capabilities.h"
#include "vfio_user/client_interrupts.h"
#include "vfio_user/client_memory.h"
#include "vfio_user/janitor.h"
#include "vfio_user/message_stream.h"
#include "vfio_user/remote_memory.h"
#include "vfio_user/unix_socket.h"
#include "vfio_user/verdict.h"

namespace softhca::vfio_user {

struct SessionOptions {
  /// How long an access to memory that the client reaches for us waits for it, in all.
  util::Duration reply_timeout = std::chrono::milliseconds(100);
  /// Its share of what the process can map, and of the descriptors that it can hold.
  std::size_t max_maps = kMaxDmaMaps;
  std::size_t max_eventfds = 4096;
  SocketAccess socket = {};  ///< of the server
};

/// How many lines the clients of a server may cause, however often they connect.
struct ClientNotes {
  util::RateLimiter refusals{10, std::chrono::seconds(1)};
  util::RateLimiter ends{10, std::chrono::seconds(1)};
};

/// What a session uses of its server's.
struct SessionHost {
  ClientNotes* notes = nullptr;             ///< not null
  util::EventLoop::Notice* more = nullptr;  ///< raised when messages wait that no poll tells of
  util::EventLoop::Notice* lost = nullptr;  ///< raised when memory_lost() becomes true
  Janitor* janitor = nullptr;               ///< null: what is to go goes at once
};

class Session {
 public:
  Session(pcie::Function& function, UniqueFd socket, const SessionHost& host,
          const SessionOptions& options);
  /// Resets the function and takes all of the client's memory and interrupts away from it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int fd() const { return stream_.fd(); }

  /// The socket has data, or its end. Handles messages until none is whole, or `budget` is spent,
  /// or the client does not take its replies. False if the connection is at its end.
  bool handle_readable(util::WorkBudget& budget);
  /// The same with what was received before.
  bool handle_queued(util::WorkBudget& budget);
  /// The socket takes replies again.
  bool handle_writable(util::WorkBudget& budget);
  /// What the socket is to be watched for (EPOLLIN or EPOLLOUT): no message is looked at before the
  /// replies to the earlier ones are out. 0: nothing, until the janitor has taken things away.
  std::uint32_t wanted_events() const;
  /// A part of the client's memory has gone: there is nothing left to serve.
  bool memory_lost() const { return memory_.lost(); }

 private:
  void handle(const Message& message, util::WorkBudget& budget);
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

  void note_more();
  bool has_room() const;

  pcie::Function& function_;
  SessionHost host_;
  SessionOptions options_;
  MessageStream stream_;
  ClientRemoteMemory remote_;
  ClientMemory memory_;
  ClientInterrupts interrupts_;
  bool negotiated_ = false;
  bool ended_ = false;
  std::vector<std::byte> reply_;  ///< payload of the reply in the making
  int reply_fd_ = -1;             ///< goes with it; not ours
  std::string version_reply_;
};

}  // namespace softhca::vfio_user
