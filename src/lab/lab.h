// A testbed in one process: HCAs by name, each with its driver and the verbs, all on one switch.
// Examples, `softhca perf` and the suite of tests/verbs use it.
//
//   lab::Lab lab({"connectx", "rsnic"});
//   auto pd = lab.device(0).allocate_pd().value();
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/verbs/device.h"
#include "lab/network.h"
#include "pcie/function.h"
#include "util/result.h"

namespace softhca::lab {

/// Names of the device models.
std::span<const std::string_view> models();
/// True if devices of `model` have a port for this link. @pre it is one of models()
bool has_link(std::string_view model, wire::Link link);

/// All objects made on the devices are destroyed before it.
class Lab : public Network {
 public:
  /// Device n has the MAC address 02:00:00:00:00:<n + 1>, and in entry 0 of its table the GID
  /// ::ffff:10.0.0.<n + 1>; on InfiniBand it has the LID that the subnet manager assigns. Throws
  /// std::runtime_error if a name is unknown, a model lacks such a port, or a device does not come
  /// up.
  explicit Lab(const std::vector<std::string>& names) : Lab(names, Options()) {}
  Lab(const std::vector<std::string>& names, const Options& options);

  std::size_t size() const { return nodes_.size(); }
  driver::verbs::Device& device(std::size_t index) { return *devices_.at(index); }
  const std::string& name(std::size_t index) const { return nodes_.at(index).name; }
  /// The name of its link in rules: <model><index>.
  std::string port_name(std::size_t index) const;

 private:
  struct Node {
    std::string name;
    std::unique_ptr<pcie::Function> function;
    std::unique_ptr<driver::Host> host;
  };

  void add(const std::string& name);
  util::Result<void> wait_for_link(driver::verbs::Device& device);

  std::vector<Node> nodes_;
  /// Closed before all functions, because a driver runs them while it waits.
  std::vector<std::unique_ptr<driver::verbs::Device>> devices_;
};

}  // namespace softhca::lab
