// The fault rules of a process that serves functions: added, listed and removed by text. SDXI
// functions and HCAs have tables of their own, with common numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hca/faults.h"
#include "pcie/function.h"
#include "sdxi/faults.h"
#include "util/result.h"

namespace softhca::server {

class FaultRules {
 public:
  /// `hca`: null if rules of HCAs are not taken. All must outlive this.
  FaultRules(const std::vector<pcie::Function*>& functions, sdxi::Faults& sdxi, hca::Faults* hca)
      : functions_(functions), sdxi_(sdxi), hca_(hca) {}

  /// Adds a rule, and returns its line of the list. Fails if no function matches it.
  util::Result<std::string> add(std::string_view text);
  util::Result<void> remove(std::string_view number);
  void clear();
  /// The rules with their counts, a line for each, by number.
  std::string list() const;
  /// `fault add RULE | fault list | fault remove NUMBER | fault clear`, without its first word.
  util::Result<std::string> answer(std::string_view words);

 private:
  util::Result<std::string> add_sdxi(std::string_view text);
  /// @pre a function takes the rule
  util::Result<std::string> add_hca(hca::FaultRule rule);
  std::string describe_hca(const hca::Faults::Entry& entry) const;
  void notify_hcas() const;

  const std::vector<pcie::Function*>& functions_;
  sdxi::Faults& sdxi_;
  hca::Faults* hca_;
};

}  // namespace softhca::server
