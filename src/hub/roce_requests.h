// Serves the requests of processes about RoCEv2 by UDP (request.h), and answers on their sockets.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <utility>

#include "hub/request.h"
#include "hub/roce_host.h"
#include "os/event_loop.h"
#include "util/log.h"
#include "util/time_source.h"

namespace softhca::hub {

class RoceRequests {
 public:
  /// The process that asks.
  struct Asker {
    unsigned number = 0;
    pid_t pid = 0;  ///< for the log
    int socket = -1;
  };

  RoceRequests(os::EventLoop& loop, const RoceHost::Options& options, RoceHost::Deliver deliver)
      : clock_(options.clock), host_(loop, options, std::move(deliver)) {}

  RoceHost& host() { return host_; }
  const RoceHost& host() const { return host_; }

  /// False: the process does not read its answers. `station`: the number of the station of shared
  /// addresses; 0: none, so kShare is refused. @pre not kAcceptLinks
  bool serve(const Asker& asker, const Request& request, unsigned station);

 private:
  bool share(const Asker& asker, unsigned station);
  bool answer(const Asker& asker, const wire::Gid& address, unsigned station);
  void warn(const Asker& asker, const RoceRefusal& refusal, const wire::Gid& address);

  const util::TimeSource clock_;
  RoceHost host_;
  util::RateLimiter warnings_{10, std::chrono::seconds(10)};
};

}  // namespace softhca::hub
