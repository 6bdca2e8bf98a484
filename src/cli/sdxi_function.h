// An SDXI function for a command, with the driver of driver/sdxi: in this process, behind a
// vfio-user socket, or on the PCI bus.
#pragma once

#include <memory>
#include <string>

#include "driver/host.h"
#include "driver/sdxi/function.h"
#include "util/result.h"

namespace softhca::cli {

class SdxiFunction {
 public:
  /// At most one of `socket` and `pci` may be set.
  static util::Result<SdxiFunction> open(const std::string& socket, const std::string& pci);

  SdxiFunction(SdxiFunction&&) noexcept;
  ~SdxiFunction();

  driver::Host& host() { return *host_; }
  driver::sdxi::Function& driver() { return *driver_; }

 private:
  struct InProcess;  ///< the device, if it is in this process

  SdxiFunction();

  std::unique_ptr<InProcess> in_process_;
  std::unique_ptr<driver::Host> host_;
  std::unique_ptr<driver::sdxi::Function> driver_;
};

}  // namespace softhca::cli
