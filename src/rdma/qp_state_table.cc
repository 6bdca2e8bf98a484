#include "rdma/qp_state_table.h"

#include <algorithm>
#include <iterator>

namespace softhca::rdma {
namespace {

using enum QpState;

constexpr QpTypes kDatagrams = only(QpType::kUc) | only(QpType::kUd);

// IBTA 10.3.1 Figure 124 and 11.2.4.2 Table 91. RESET leads to INIT only: there is no RESET to ERR.
constexpr QpTransition kTransitions[] = {
    {kReset, kReset, kAllTypes},     {kReset, kInit, kAllTypes},    {kInit, kReset, kAllTypes},
    {kInit, kInit, kAllTypes},       {kInit, kRtr, kAllTypes},      {kInit, kError, kAllTypes},
    {kRtr, kReset, kAllTypes},       {kRtr, kRts, kAllTypes},       {kRtr, kError, kAllTypes},
    {kRts, kReset, kAllTypes},       {kRts, kRts, kAllTypes},       {kRts, kSqDrain, kAllTypes},
    {kRts, kError, kAllTypes},       {kSqError, kReset, kAllTypes}, {kSqError, kRts, kDatagrams},
    {kSqError, kError, kAllTypes},   {kSqDrain, kReset, kAllTypes}, {kSqDrain, kRts, kAllTypes},
    {kSqDrain, kSqDrain, kAllTypes}, {kSqDrain, kError, kAllTypes}, {kError, kReset, kAllTypes},
    {kError, kError, kAllTypes},
};

constexpr QpStateRules kRules[] = {
    {.state = kReset,
     .sends = false,
     .finishes = false,
     .receives = false,
     .flushes_send = false,
     .flushes_receive = false},
    {.state = kInit,
     .sends = false,
     .finishes = false,
     .receives = false,
     .flushes_send = false,
     .flushes_receive = false},
    {.state = kRtr,
     .sends = false,
     .finishes = false,
     .receives = true,
     .flushes_send = false,
     .flushes_receive = false},
    {.state = kRts,
     .sends = true,
     .finishes = true,
     .receives = true,
     .flushes_send = false,
     .flushes_receive = false},
    {.state = kSqError,
     .sends = false,
     .finishes = false,
     .receives = true,
     .flushes_send = true,
     .flushes_receive = false},
    {.state = kSqDrain,
     .sends = false,
     .finishes = true,
     .receives = true,
     .flushes_send = false,
     .flushes_receive = false},
    {.state = kError,
     .sends = false,
     .finishes = false,
     .receives = false,
     .flushes_send = true,
     .flushes_receive = true},
};

}  // namespace

std::span<const QpTransition> qp_transition_table() { return kTransitions; }

bool transition_allowed(QpType type, QpState from, QpState to) {
  return std::any_of(std::begin(kTransitions), std::end(kTransitions), [&](const auto& t) {
    return t.from == from && t.to == to && (t.types & only(type)) != 0;
  });
}

const QpStateRules& state_rules(QpState state) { return kRules[static_cast<std::size_t>(state)]; }

std::string print_qp_transitions(QpType type) {
  std::string text;
  for (const auto& rules : kRules) {
    text += to_string(rules.state);
    text += " ->";
    for (const auto& t : kTransitions) {
      if (t.from == rules.state && (t.types & only(type)) != 0) {
        text += ' ';
        text += to_string(t.to);
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace softhca::rdma
