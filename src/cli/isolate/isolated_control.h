// What a server with a process for each guest answers on its control socket: the same as one
// without (control.h), collected from the processes, and what there is to know about these.
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

  /// A rule of the command line. Fails if it is about none of the functions.
  util::Result<void> add_rule(std::string_view text);
  /// The rules for process `index`, which is about to start with these.
  std::vector<std::string> rules_for(std::size_t index);
  /// The processes are there, in the order of the groups; `times`: of the server's own loop. They
  /// outlive this.
  void set_processes(std::vector<GuestProcess*> processes, const vfio_user::TurnTimes& times) {
    processes_ = std::move(processes);
    times_ = &times;
  }

  void answer(std::string_view request, ControlSocket::Reply reply);

 private:
  /// One rule, of all processes that it is for.
  struct Rule {
    sdxi::FaultRule rule;
    std::string text;
    std::map<std::size_t, sdxi::FaultId> ids;  ///< its number in each process; 0: not known yet
  };
  /// Who is asked what.
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
