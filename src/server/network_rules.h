// The rules of the network among the fault rules of a server: those whose first key is port=. Their
// numbers begin with n, because functions have rules of their own.
//
//   fault add port=nic0,do=lose | fault list | fault remove n1 | fault clear
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/network_faults.h"
#include "util/result.h"

namespace softhca::server {

class NetworkRules {
 public:
  /// `ports`: the names that port= may have. @pre `faults` outlives this
  NetworkRules(fabric::NetworkFaults& faults, std::vector<std::string> ports)
      : faults_(faults), ports_(std::move(ports)) {}

  /// Adds a rule. Returns its line of the list.
  util::Result<std::string> add(std::string_view text);
  /// Answers the words after "fault". `others` answers them for the rules of functions.
  util::Result<std::string> answer(std::string_view words,
                                   const std::function<util::Result<std::string>()>& others);

 private:
  util::Result<std::string> remove(std::string_view number);

  fabric::NetworkFaults& faults_;
  const std::vector<std::string> ports_;
};

}  // namespace softhca::server
