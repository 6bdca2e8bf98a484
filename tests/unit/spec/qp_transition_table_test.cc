// JingZhao table A1-2, row by row for RC, UC and UD, as InfiniBand defines it (IBTA
// 11.2.4.2 Tables 91 and 92), and the rows of XRC and DC. The test compares in both directions: it
// finds missing rows and extra rows of the code.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "spec/infiniband/qp_states.h"

namespace softhca::spec::infiniband {
namespace {

using enum QpState;
using enum QpAttribute;
using Set = QpAttributeSet;

constexpr auto kRc = QpType::kRc, kUc = QpType::kUc, kUd = QpType::kUd;
constexpr auto kIni = QpType::kXrcInitiator, kTgt = QpType::kXrcTarget, kDci = QpType::kDcInitiator;
constexpr QpType kTransitionTypes[] = {kRc, kUc, kUd, kIni, kTgt, kDci};

struct Row {
  QpType type;
  QpState from, to;
  Set required = {}, optional = {};
};

// The document marks MAX_QP_RD_ATOMIC and MAX_DEST_RD_ATOMIC as unused; InfiniBand requires them
// for RC.
constexpr Row kRows[] = {
    {kRc, kReset, kInit, {kPkeyIndex, kPort, kAccessFlags}},
    {kUc, kReset, kInit, {kPkeyIndex, kPort, kAccessFlags}},
    {kUd, kReset, kInit, {kPkeyIndex, kPort, kQkey}},
    {kIni, kReset, kInit, {kPkeyIndex, kPort, kAccessFlags}},
    {kTgt, kReset, kInit, {kPkeyIndex, kPort, kAccessFlags}},
    {kDci, kReset, kInit, {kPkeyIndex, kPort}},

    // Table A1-2 requires these attributes for INIT to INIT. The JingZhao device enforces that
    // itself (JingzhaoModifyQp).
    {kRc, kInit, kInit, {}, {kPkeyIndex, kPort, kAccessFlags}},
    {kUc, kInit, kInit, {}, {kPkeyIndex, kPort, kAccessFlags}},
    {kUd, kInit, kInit, {}, {kPkeyIndex, kPort, kQkey}},
    {kIni, kInit, kInit, {}, {kPkeyIndex, kPort, kAccessFlags}},
    {kTgt, kInit, kInit, {}, {kPkeyIndex, kPort, kAccessFlags}},
    {kDci, kInit, kInit, {}, {kPkeyIndex, kPort}},

    {kRc,
     kInit,
     kRtr,
     {kAddressVector, kPathMtu, kDestinationQpn, kRqPsn, kMinRnrTimer, kMaxDestRdAtomic},
     {kAlternatePath, kAccessFlags, kPkeyIndex}},
    {kUc,
     kInit,
     kRtr,
     {kAddressVector, kPathMtu, kDestinationQpn, kRqPsn},
     {kAlternatePath, kAccessFlags, kPkeyIndex}},
    {kUd, kInit, kRtr, {}, {kPkeyIndex, kQkey}},
    {kIni,
     kInit,
     kRtr,
     {kAddressVector, kPathMtu, kDestinationQpn, kRqPsn},
     {kAlternatePath, kAccessFlags, kPkeyIndex}},
    {kTgt,
     kInit,
     kRtr,
     {kAddressVector, kPathMtu, kDestinationQpn, kRqPsn, kMinRnrTimer, kMaxDestRdAtomic},
     {kAlternatePath, kAccessFlags, kPkeyIndex}},
    {kDci, kInit, kRtr, {kPathMtu}, {kPkeyIndex}},

    {kRc,
     kRtr,
     kRts,
     {kTimeout, kRetryCount, kRnrRetry, kSqPsn, kMaxRdAtomic},
     {kCurrentState, kAlternatePath, kAccessFlags, kMinRnrTimer, kPathMigrationState}},
    {kUc, kRtr, kRts, {kSqPsn}, {kCurrentState, kAlternatePath, kAccessFlags, kPathMigrationState}},
    {kUd, kRtr, kRts, {kSqPsn}, {kCurrentState, kQkey}},
    {kIni,
     kRtr,
     kRts,
     {kTimeout, kRetryCount, kRnrRetry, kSqPsn, kMaxRdAtomic},
     {kCurrentState, kAlternatePath, kAccessFlags, kPathMigrationState}},
    {kTgt,
     kRtr,
     kRts,
     {kTimeout, kSqPsn},
     {kCurrentState, kAlternatePath, kAccessFlags, kMinRnrTimer, kPathMigrationState}},
    {kDci, kRtr, kRts, {kTimeout, kRetryCount, kRnrRetry, kSqPsn, kMaxRdAtomic}, {kCurrentState}},

    {kRc,
     kRts,
     kRts,
     {},
     {kCurrentState, kAccessFlags, kAlternatePath, kPathMigrationState, kMinRnrTimer}},
    {kUc, kRts, kRts, {}, {kCurrentState, kAccessFlags, kAlternatePath, kPathMigrationState}},
    {kUd, kRts, kRts, {}, {kCurrentState, kQkey}},
    {kIni, kRts, kRts, {}, {kCurrentState, kAccessFlags, kAlternatePath, kPathMigrationState}},
    {kTgt,
     kRts,
     kRts,
     {},
     {kCurrentState, kAccessFlags, kAlternatePath, kPathMigrationState, kMinRnrTimer}},
    {kDci, kRts, kRts, {}, {kCurrentState}},

    {kRc, kRts, kSqDrain, {}, {kSqDrainNotify}},
    {kUc, kRts, kSqDrain, {}, {kSqDrainNotify}},
    {kUd, kRts, kSqDrain, {}, {kSqDrainNotify}},
    {kIni, kRts, kSqDrain, {}, {kSqDrainNotify}},
    {kTgt, kRts, kSqDrain, {}, {kSqDrainNotify}},
    {kDci, kRts, kSqDrain, {}, {kSqDrainNotify}},

    {kRc,
     kSqDrain,
     kRts,
     {},
     {kCurrentState, kAlternatePath, kAccessFlags, kMinRnrTimer, kPathMigrationState}},
    {kUc, kSqDrain, kRts, {}, {kCurrentState, kAlternatePath, kAccessFlags, kPathMigrationState}},
    {kUd, kSqDrain, kRts, {}, {kCurrentState, kQkey}},
    {kIni, kSqDrain, kRts, {}, {kCurrentState, kAlternatePath, kAccessFlags, kPathMigrationState}},
    {kTgt,
     kSqDrain,
     kRts,
     {},
     {kCurrentState, kAlternatePath, kAccessFlags, kMinRnrTimer, kPathMigrationState}},
    {kDci, kSqDrain, kRts, {}, {kCurrentState}},

    {kRc,
     kSqDrain,
     kSqDrain,
     {},
     {kPort, kAddressVector, kTimeout, kRetryCount, kRnrRetry, kAlternatePath, kAccessFlags,
      kPkeyIndex, kMinRnrTimer, kPathMigrationState, kMaxRdAtomic, kMaxDestRdAtomic}},
    {kUc,
     kSqDrain,
     kSqDrain,
     {},
     {kAddressVector, kAlternatePath, kAccessFlags, kPkeyIndex, kPathMigrationState}},
    {kUd, kSqDrain, kSqDrain, {}, {kPkeyIndex, kQkey}},
    {kIni,
     kSqDrain,
     kSqDrain,
     {},
     {kPort, kAddressVector, kTimeout, kRetryCount, kRnrRetry, kAlternatePath, kAccessFlags,
      kPkeyIndex, kPathMigrationState, kMaxRdAtomic}},
    {kTgt,
     kSqDrain,
     kSqDrain,
     {},
     {kPort, kAddressVector, kTimeout, kAlternatePath, kAccessFlags, kPkeyIndex, kMinRnrTimer,
      kPathMigrationState, kMaxDestRdAtomic}},
    {kDci,
     kSqDrain,
     kSqDrain,
     {},
     {kPort, kTimeout, kRetryCount, kRnrRetry, kPkeyIndex, kMaxRdAtomic}},

    {kUc, kSqError, kRts, {}, {kCurrentState, kAccessFlags}},
    {kUd, kSqError, kRts, {}, {kCurrentState, kQkey}},
};

/// Rows of every type without attributes: from each state to RST, and to ERR from each state except
/// RST.
bool needs_nothing(QpState from, QpState to) {
  return to == kReset || (to == kError && from != kReset);
}

TEST(QpTransitionTable, EachRowOfTheDocumentIsInTheCode) {
  for (const auto& row : kRows) {
    const auto* found = find_transition(row.type, row.from, row.to);
    ASSERT_NE(found, nullptr) << to_string(row.type) << to_string(row.from) << to_string(row.to);
    EXPECT_EQ(found->required.bits(), row.required.bits())
        << to_string(row.type) << ' ' << to_string(row.from) << ' ' << to_string(row.to);
    EXPECT_EQ(found->optional.bits(), row.optional.bits())
        << to_string(row.type) << ' ' << to_string(row.from) << ' ' << to_string(row.to);
  }
}

TEST(QpTransitionTable, NoRowOfTheCodeIsAnother) {
  for (const auto type : kTransitionTypes) {
    for (const auto& from : kQpStateRules) {
      for (const auto& to : kQpStateRules) {
        const bool listed = std::ranges::any_of(kRows, [&](const Row& row) {
          return row.type == type && row.from == from.state && row.to == to.state;
        });
        const auto* found = find_transition(type, from.state, to.state);
        EXPECT_EQ(found != nullptr, listed || needs_nothing(from.state, to.state))
            << to_string(type) << ' ' << to_string(from.state) << ' ' << to_string(to.state);
        if (found != nullptr && !listed) {
          EXPECT_TRUE(found->taken(Set::all()).empty());
        }
      }
    }
  }
}

}  // namespace
}  // namespace softhca::spec::infiniband
