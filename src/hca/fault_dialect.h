// The rules of one kind of HCA: the names of its document, and what the document does not have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hca/fault_rule.h"

namespace softhca::hca {

/// A key of one kind of fault that the document gives no meaning.
struct FaultGap {
  FaultAction action;
  std::string_view key;
  std::string_view value;  ///< empty: any
  std::string_view why;
};

/// A difference of the device from the table of kinds.
struct FaultNote {
  FaultAction action;
  std::string_view text;
};

struct FaultDialect {
  std::string_view device;  ///< with its article, for error messages
  FaultNames names;
  /// A command ends only with a status that has a name.
  bool only_named_statuses = false;
  std::vector<FaultGap> gaps = {};
  std::vector<FaultNote> notes = {};
};

/// Fails, in words, for a rule whose effect the document does not have.
util::Result<FaultRule> parse_fault(std::string_view text, const FaultDialect& dialect);
/// The table of docs/faults-hca.md for this kind of HCA.
std::string dialect_table(const FaultDialect& dialect);

}  // namespace softhca::hca
