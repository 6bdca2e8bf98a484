// The control socket of a run (`softhca run --control`). It forwards each question to all processes
// of the run, by the sockets of their libraries (door/control/control_point.h), and combines the
// answers. It has its own thread, so the run's hub continues meanwhile.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "cli/control_socket.h"
#include "cli/run/run_directory.h"
#include "util/event_loop.h"
#include "util/result.h"
#include "vfio_user/janitor.h"

namespace softhca::cli {

class RunControl {
 public:
  /// Listens at `path`. @pre signals are blocked, so that the thread inherits that
  static util::Result<std::unique_ptr<RunControl>> create(const std::string& path);
  ~RunControl();
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  /// The directory in which the processes listen.
  const std::string& directory() const { return directory_.path(); }

 private:
  explicit RunControl(RunDirectory directory) : directory_(std::move(directory)) {}
  std::string answer(std::string_view request);

  RunDirectory directory_;
  vfio_user::Janitor janitor_;  ///< used by the thread
  std::unique_ptr<util::EventLoop> events_;
  std::unique_ptr<ControlSocket> socket_;
  std::thread thread_;
};

}  // namespace softhca::cli
