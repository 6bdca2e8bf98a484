// The control socket of a server with a process for each guest. It answers like control.h, from the
// answers of the processes, and also reports on the processes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/control_socket.h"
#include "cli/device_spec.h"
#include "cli/inspect_request.h"
#include "cli/isolate/groups.h"
#include "cli/isolate/guest_process.h"
#include "cli/isolate/joined_answers.h"
#include "sdxi/faults.h"
#include "vfio_user/turn_times.h"

namespace softhca::cli {

class IsolatedControl {
 public:
  /// `groups`: the devices of each process.
  IsolatedControl(util::EventLoop& loop, const std::vector<DeviceSpec>& specs,
                  std::vector<DeviceGroup> groups)
      : specs_(specs), groups_(std::move(groups)), joined_(loop) {}

  /// Adds a rule of the command line. Fails if no function matches it.
  util::Result<void> add_rule(std::string_view text);
  /// The rules with which process `index` is about to start.
  std::vector<std::string> rules_for(std::size_t index);
  /// Sets the processes, in the order of the groups, and the `times` of the server's own loop. All
  /// must outlive this.
  void set_processes(std::vector<GuestProcess*> processes, const vfio_user::TurnTimes& times) {
    processes_ = std::move(processes);
    times_ = &times;
  }

  void answer(std::string_view request, ControlSocket::Reply reply);

 private:
  /// One rule, and its number in each process that it is for.
  struct Rule {
    sdxi::FaultRule rule;
    std::string text;
    std::map<std::size_t, sdxi::FaultId> ids;  ///< 0: not known yet
  };
  /// Requests, and the process for each.
  using Questions = std::vector<std::pair<GuestProcess*, std::string>>;
  using Rules = std::map<sdxi::FaultId, Rule>;

  void inspect(std::string_view words, ControlSocket::Reply reply);
  void inspect_all(InspectRequest request, ControlSocket::Reply reply);
  void inspect_loop(bool json, ControlSocket::Reply reply);
  Questions ask_loops(bool json) const;
  std::string inspect_processes(bool json) const;
  void add_loops(std::vector<AnswerPart>& parts, bool json, unsigned depth,
                 std::span<std::string> answers) const;
  void fault(std::string_view words, const ControlSocket::Reply& reply);
  void fault_add(std::string_view text, ControlSocket::Reply reply);
  void fault_remove(std::string_view number, const ControlSocket::Reply& reply);
  void fault_list(bool clear, ControlSocket::Reply reply);
  util::Result<Rules::iterator> make_rule(std::string_view text);
  std::size_t process_of(std::size_t device) const;
  bool has_data_mover(std::size_t process) const;

  const std::vector<DeviceSpec>& specs_;
  const std::vector<DeviceGroup> groups_;
  std::vector<GuestProcess*> processes_;
  const vfio_user::TurnTimes* times_ = nullptr;
  Rules rules_;
  sdxi::FaultId last_rule_ = 0;
  JoinedAnswers joined_;
};

}  // namespace softhca::cli
