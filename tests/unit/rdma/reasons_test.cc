// Reason numbers are fixed: drivers' logs and CQEs from years ago must keep their meaning.

#include "rdma/reasons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

TEST(Reasons, NumbersNeverChange) {
  struct Pin {
    Reason reason;
    unsigned number;
  };
  constexpr Pin kPins[] = {
      {Reason::kNone, 0},
      {Reason::kKeyUnknown, 128},
      {Reason::kKeyInvalidated, 129},
      {Reason::kKeyOtherPd, 130},
      {Reason::kKeyOtherQp, 131},
      {Reason::kKeyRights, 132},
      {Reason::kKeyRange, 133},
      {Reason::kReservedKeyForbidden, 134},
      {Reason::kMemoryUnreachable, 135},
      {Reason::kScatterListShort, 136},
      {Reason::kPageAbsent, 137},
      {Reason::kPageNotBrought, 138},
      {Reason::kKeySigned, 139},
      {Reason::kSignatureValueGone, 140},
      {Reason::kSignatureMismatch, 141},
      {Reason::kMalformedRequest, 144},
      {Reason::kSendQueueUnreachable, 145},
      {Reason::kOperationOfOtherService, 146},
      {Reason::kMessageTooLong, 147},
      {Reason::kInlineRead, 148},
      {Reason::kNoReadsAllowed, 149},
      {Reason::kAtomicSize, 150},
      {Reason::kNoSourceAddress, 151},
      {Reason::kLocalOperationRefused, 152},
      {Reason::kFlushed, 153},
      {Reason::kNoVirtualLane, 154},
      {Reason::kBeyondMessage, 155},
      {Reason::kFaultRule, 156},
      {Reason::kNakInvalidRequest, 160},
      {Reason::kNakRemoteAccess, 161},
      {Reason::kNakRemoteOperation, 162},
      {Reason::kRetriesExceeded, 163},
      {Reason::kRnrRetriesExceeded, 164},
      {Reason::kReadResponseMismatch, 165},
      {Reason::kAtomicResponseMismatch, 166},
      {Reason::kReservedSyndrome, 167},
      {Reason::kReservedNak, 168},
      {Reason::kNoReceiveQueue, 176},
      {Reason::kNothingPosted, 177},
      {Reason::kReceiveQueueUnreachable, 178},
      {Reason::kMalformedReceive, 179},
      {Reason::kMessageInMessage, 180},
      {Reason::kMiddleOfNothing, 181},
      {Reason::kMixedMessage, 182},
      {Reason::kPacketSize, 183},
      {Reason::kReceiveTooShort, 184},
      {Reason::kDatagramTooLong, 185},
      {Reason::kWriteForbidden, 186},
      {Reason::kReadForbidden, 187},
      {Reason::kAtomicForbidden, 188},
      {Reason::kWriteTooLong, 189},
      {Reason::kReadTooLong, 190},
      {Reason::kWriteLength, 191},
      {Reason::kWriteData, 192},
      {Reason::kNotARequest, 193},
      {Reason::kRequestInMessage, 194},
      {Reason::kRequestWithPayload, 195},
      {Reason::kTooManyReads, 196},
      {Reason::kAtomicUnaligned, 197},
      {Reason::kInvalidateUnknown, 198},
      {Reason::kInvalidateOther, 199},
      {Reason::kInvalidateTwice, 200},
      {Reason::kInvalidateForbidden, 201},
      {Reason::kMemoryGoneDuringRead, 202},
      {Reason::kXrcSrqUnknown, 203},
      {Reason::kXrcSrqOfOtherDomain, 204},
      {Reason::kUnexpectedAnswer, 208},
      {Reason::kUnexpectedRequest, 209},
      {Reason::kPsnAhead, 210},
      {Reason::kRepeatedReadAhead, 211},
      {Reason::kRepeatedAtomicTooOld, 212},
      {Reason::kWrongIcrc, 213},
      {Reason::kMalformedPacket, 214},
      {Reason::kQpInReset, 215},
      {Reason::kOtherService, 216},
      {Reason::kNotFromPeer, 217},
      {Reason::kWrongPkey, 218},
      {Reason::kWrongQkey, 219},
      {Reason::kAnswerToNothing, 220},
      {Reason::kBrokenMessage, 221},
      {Reason::kTooManyDuplicates, 222},
      {Reason::kUnknownQpn, 223},
      {Reason::kTransitionForbidden, 224},
      {Reason::kPathMtu, 225},
      {Reason::kFirstPacket, 226},
      {Reason::kDrained, 227},
      {Reason::kLastWqe, 228},
      {Reason::kCompletionQueueFailed, 229},
      {Reason::kWrongDcKey, 232},
      {Reason::kDcTargetDrains, 233},
      {Reason::kDcNotConnected, 234},
      {Reason::kDcOldSession, 235},
      {Reason::kDcNoResponder, 236},
      {Reason::kTooManyCopies, 237},
      {Reason::kSendTooLong, 238},
      {Reason::kUnsupportedRequest, 239},
      {Reason::kXrcSrqChanged, 240},
      {Reason::kTooManyPieces, 241},
  };
  for (const auto& pin : kPins) EXPECT_EQ(static_cast<unsigned>(pin.reason), pin.number);
  EXPECT_EQ(std::size(kPins), reason_table().size() + 1) << "a new one is pinned here too";
}

TEST(Reasons, EachHasWordsOfItsOwnAndASection) {
  std::set<std::string_view> texts;
  for (const auto& info : reason_table()) {
    EXPECT_TRUE(texts.insert(info.text).second) << info.text;
    const bool dynamic =
        info.reason >= Reason::kWrongDcKey && info.reason <= Reason::kDcNoResponder;
    const bool blocks = info.reason == Reason::kSignatureMismatch;
    EXPECT_TRUE(info.section.starts_with(dynamic  ? "US patent "
                                         : blocks ? "T10 SBC-3 "
                                                  : "IBTA "))
        << info.text;
    EXPECT_EQ(&describe(info.reason), &info);
  }
}

TEST(Reasons, TheFirstHalfOfTheNumbersIsTheDevices) {
  for (unsigned number = 1; number < 128; ++number) {
    EXPECT_EQ(describe(Reason(number)).text, "a reason of the device's own");
  }
  EXPECT_EQ(describe(Reason::kNone).text, "");
}

class KeyReasons : public ::testing::Test {
 protected:
  KeyReasons() { pair.connect(); }
  /// The result of a 100-byte WRITE through a key of `a` that `change` has spoiled.
  Reason local(const std::function<void(MemoryKey::Attributes&)>& change) {
    auto attributes = pair.a.keys.find(kKey)->attributes();
    attributes.key = MKey(0x9900);
    change(attributes);
    pair.a.keys.insert(attributes);
    auto request = write(0, 0, 100);
    request.sges[0].lkey = MKey(0x9900);
    pair.a.post(*pair.qa, request);
    pair.drive();
    EXPECT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kLocalProtection);
    return pair.a.hca.sends.at(0).reason;
  }
  Pair pair;
};

TEST_F(KeyReasons, OfAnotherProtectionDomain) {
  EXPECT_EQ(local([](auto& key) { key.pd = Pd(8); }), Reason::kKeyOtherPd);
}
TEST_F(KeyReasons, Invalidated) {
  EXPECT_EQ(local([](auto& key) { key.free = true; }), Reason::kKeyInvalidated);
}
TEST_F(KeyReasons, OfAnotherQp) {
  EXPECT_EQ(local([](auto& key) { key.only_qpn = Qpn(0x99); }), Reason::kKeyOtherQp);
}
TEST_F(KeyReasons, WithoutTheRight) {
  EXPECT_EQ(local([](auto& key) { key.access = kLocalWrite; }), Reason::kKeyRights);
}
TEST_F(KeyReasons, TooShort) {
  EXPECT_EQ(local([](auto& key) { key.length = 99; }), Reason::kKeyRange);
}
TEST_F(KeyReasons, Unknown) {
  EXPECT_EQ(local([](auto& key) { key.key = MKey(0x9901); }), Reason::kKeyUnknown);
}
TEST_F(KeyReasons, WithoutMemory) {
  EXPECT_EQ(local([](auto& key) {
              for (auto& page : key.pages) page += std::uint64_t{1} << 40;
            }),
            Reason::kMemoryUnreachable);
}

// The completion returns the device's own reason number.
TEST(Reasons, TheReasonOfAMalformedWqeIsTheDevices) {
  Pair pair;
  pair.connect();
  pair.a.hca.malformed_send = true;
  auto request = write(0, 0, 100);
  request.fault = Reason(17);
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(0).reason, Reason(17));

  Pair other;
  other.connect();
  other.b.hca.malformed_receive = true;
  other.b.post_receive(*other.qb, {End::sge(0, 100)});
  other.b.hca.receives_posted[Qpn(0x22)].front().fault = Reason(18);
  other.a.post(*other.qa, send(0, 100));
  other.drive();
  EXPECT_EQ(other.b.hca.receives.at(0).completion.reason, Reason(18));
}

// The log, the event and the completion carry the same number.
TEST(Reasons, TheReasonOfARefusedRequestIsReportedOnBothSides) {
  Pair pair;
  pair.connect();
  auto request = write(0, 0, 100);
  request.rkey = MKey(0x7700);
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(0).reason, Reason::kNakRemoteAccess);
  ASSERT_EQ(pair.b.hca.events.size(), 1u);
  EXPECT_EQ(pair.b.hca.events[0].reason, Reason::kKeyUnknown);
}

}  // namespace
}  // namespace softhca::rdma::test
