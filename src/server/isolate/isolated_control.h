// The control socket of a server with a process for each guest. It answers like
// server/control.h, from the answers of the processes, and also reports on the processes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/control_socket.h"
#include "control/inspect_request.h"
#include "control/joined_answers.h"
#include "sdxi/faults.h"
#include "server/device_spec.h"
#include "server/fault_family.h"
#include "server/isolate/groups.h"
#include "server/isolate/guest_process.h"
#include "vfio_user/turn_times.h"

namespace softhca::server {

class IsolatedControl {
 public:
  /// `groups`: the devices of each process.
  IsolatedControl(os::EventLoop& loop, const std::vector<DeviceSpec>& specs,
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

  void answer(std::string_view request, control::ControlSocket::Reply reply);

 private:
  /// One rule, and its number in each process that it is for.
  struct Rule {
    std::string shown;                         ///< as fault list has it
    std::string text;                          ///< as it was given
    std::map<std::size_t, sdxi::FaultId> ids;  ///< 0: not known yet
  };
  /// Requests, and the process for each.
  using Questions = std::vector<std::pair<GuestProcess*, std::string>>;
  using Rules = std::map<sdxi::FaultId, Rule>;

  void inspect(std::string_view words, control::ControlSocket::Reply reply);
  void inspect_all(control::InspectRequest request, control::ControlSocket::Reply reply);
  void inspect_loop(bool json, control::ControlSocket::Reply reply);
  Questions ask_loops(bool json) const;
  std::string inspect_processes(bool json) const;
  void add_loops(std::vector<control::AnswerPart>& parts, bool json, unsigned depth,
                 std::span<std::string> answers) const;
  void fault(std::string_view words, const control::ControlSocket::Reply& reply);
  void fault_add(std::string_view text, control::ControlSocket::Reply reply);
  void fault_remove(std::string_view number, const control::ControlSocket::Reply& reply);
  void fault_list(bool clear, control::ControlSocket::Reply reply);
  util::Result<Rules::iterator> make_rule(std::string_view text);
  std::size_t process_of(std::size_t device) const;
  std::optional<FaultFamilies> families_of(std::string_view function) const;
  /// True if functions of the process take rules of this family.
  bool takes(std::size_t process, FaultFamily family) const;

  const std::vector<DeviceSpec>& specs_;
  const std::vector<DeviceGroup> groups_;
  std::vector<GuestProcess*> processes_;
  const vfio_user::TurnTimes* times_ = nullptr;
  Rules rules_;
  sdxi::FaultId last_rule_ = 0;
  control::JoinedAnswers joined_;
};

}  // namespace softhca::server
