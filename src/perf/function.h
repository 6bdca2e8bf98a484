// An existing HCA: a function of the PCI bus, or behind a vfio-user socket, with the driver that
// its identity requires.
#pragma once

#include <memory>
#include <string>

#include "driver/host.h"
#include "driver/verbs/device.h"
#include "util/result.h"

namespace softhca::perf {

struct Function {
  std::string model;  ///< as `--device` names it
  std::unique_ptr<driver::Host> host;
  std::unique_ptr<driver::verbs::Device> device;
};

/// `where`: a PCI address (0000:01:00.0) bound to vfio-pci, or the path of a socket. Waits for the
/// link, and sets a unique address in 10.0.0.0/8.
util::Result<Function> open_function(const std::string& where);

}  // namespace softhca::perf
