// The control socket of a run (`softhca run --control`). It forwards each question to all processes
// of the run, by the sockets of their libraries (door/control/control_point.h), and combines the
// answers. It has its own thread, so the run's hub continues meanwhile.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "control/control_socket.h"
#include "fabric/shared_faults.h"
#include "os/event_loop.h"
#include "os/janitor.h"
#include "run/run_directory.h"
#include "util/result.h"

namespace softhca::run {

class RunControl {
 public:
  /// Listens at `path`. `fabric`: the directory of the run's hub, which is asked as well if it has
  /// a trunk. `book`: the run's rules, which only this changes from now on; null: it has none. @pre
  /// signals are blocked, so that the thread inherits that; `book` outlives this
  static util::Result<std::unique_ptr<RunControl>> create(const std::string& path,
                                                          std::string fabric = {},
                                                          fabric::FaultBook* book = nullptr);
  ~RunControl();
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  /// The directory in which the processes listen.
  const std::string& directory() const { return directory_.path(); }

 private:
  RunControl(RunDirectory directory, std::string fabric, fabric::FaultBook* book)
      : directory_(std::move(directory)), fabric_(std::move(fabric)), book_(book) {}
  std::string answer(std::string_view request);
  std::string fault(std::string_view words);

  RunDirectory directory_;
  const std::string fabric_;
  fabric::FaultBook* const book_;
  os::Janitor janitor_;  ///< used by the thread
  std::unique_ptr<os::EventLoop> events_;
  std::unique_ptr<control::ControlSocket> socket_;
  std::thread thread_;
};

}  // namespace softhca::run
