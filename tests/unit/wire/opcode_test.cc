#include "wire/opcode.h"

#include <gtest/gtest.h>

#include <set>

namespace softhca::wire {
namespace {

bool is_reserved(Opcode opcode) { return to_string(opcode).empty(); }

TEST(OpcodeTable, NamesEveryOpcodeOnceAndByItsTransport) {
  std::set<std::string_view> names;
  int defined = 0;
  for (int i = 0; i != 256; ++i) {
    const auto& info = kOpcodes[static_cast<std::size_t>(i)];
    if (!info.defined || is_reserved(Opcode(i))) continue;
    ++defined;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    // The manufacturers' codes include the masked atomics of RC and XRC.
    constexpr int kManufacturers = 7;
    EXPECT_TRUE(static_cast<int>(info.service) == i >> 5 || i >> 5 == kManufacturers) << info.name;
    EXPECT_EQ(info.name, to_string(Opcode(i)));
  }
  // RC, XRC and DC have 25 operations each, UC 12, UD 2; plus FLUSH and ATOMIC WRITE of RC, CNP and
  // DC disconnect.
  EXPECT_EQ(defined, 25 + 25 + 25 + 12 + 2 + 2 + 1 + 1);
}

// Finds a row that the table lacks, or one too many.
TEST(OpcodeTable, DefinesWhatTheEnumerationDefines) {
  for (unsigned i = 0; i != 256; ++i) {
    if (is_reserved(Opcode(i)) && info(Opcode(i)).operation == Operation::kUnsupported) continue;
    EXPECT_EQ(info(Opcode(i)).defined, !is_reserved(Opcode(i))) << i;
  }
}

// IBTA 9.9.3: a reliable responder refuses them, others drop them.
TEST(OpcodeTable, ReservedOpcodesOfReliableServicesAreRequestsWithoutHeaders) {
  for (unsigned i = 0; i != 256; ++i) {
    if (!is_reserved(Opcode(i))) continue;
    const auto& reserved = info(Opcode(i));
    const auto service = Service(i >> 5);
    const bool reliable = service == Service::RC || service == Service::XRC;
    ASSERT_EQ(reserved.defined, reliable) << i;
    if (!reliable) continue;
    EXPECT_EQ(reserved.service, service) << i;
    EXPECT_EQ(reserved.operation, Operation::kUnsupported) << i;
    EXPECT_TRUE(reserved.request && reserved.only()) << i;
    EXPECT_EQ(reserved.headers_size, 0) << i;
  }
}

// IBTA 9.2.1 Table 38, and the sizes that follow from it.
TEST(OpcodeTable, ExtendedHeadersFollowFromTheOpcode) {
  const auto size = [](Opcode opcode) { return int{info(opcode).headers_size}; };
  EXPECT_EQ(size(Opcode::RC_SEND_MIDDLE), 0);
  EXPECT_EQ(size(Opcode::RC_SEND_LAST_WITH_IMMEDIATE), 4);
  EXPECT_EQ(size(Opcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE), 20);
  EXPECT_EQ(size(Opcode::RC_RDMA_WRITE_MIDDLE), 0);
  EXPECT_EQ(size(Opcode::RC_RDMA_READ_REQUEST), 16);
  EXPECT_EQ(size(Opcode::RC_RDMA_READ_RESPONSE_FIRST), 4);
  EXPECT_EQ(size(Opcode::RC_RDMA_READ_RESPONSE_MIDDLE), 0);
  EXPECT_EQ(size(Opcode::RC_ATOMIC_ACKNOWLEDGE), 12);
  EXPECT_EQ(size(Opcode::RC_CMP_SWAP), 28);
  EXPECT_EQ(size(Opcode::UD_SEND_ONLY), 8);
  EXPECT_EQ(size(Opcode::UD_SEND_ONLY_WITH_IMMEDIATE), 12);
  EXPECT_EQ(size(Opcode::XRC_RDMA_WRITE_ONLY), 20);
  EXPECT_EQ(size(Opcode::XRC_ACKNOWLEDGE), 4);
  EXPECT_TRUE(info(Opcode::XRC_SEND_FIRST).has(ExtHeader::kXrcEth));
  EXPECT_FALSE(info(Opcode::XRC_RDMA_READ_RESPONSE_ONLY).has(ExtHeader::kXrcEth));
  EXPECT_EQ(size(Opcode::DC_SEND_MIDDLE), 20) << "every request says of which connection it is";
  EXPECT_EQ(size(Opcode::DC_RDMA_WRITE_ONLY_WITH_IMMEDIATE), 40);
  EXPECT_EQ(size(Opcode::DC_DISCONNECT), 20);
  EXPECT_EQ(size(Opcode::DC_ACKNOWLEDGE), 4);
  EXPECT_FALSE(info(Opcode::DC_RDMA_READ_RESPONSE_ONLY).has(ExtHeader::kDcEth));
}

TEST(OpcodeTable, GivesPlaceAndDirection) {
  EXPECT_TRUE(info(Opcode::RC_SEND_ONLY).only());
  EXPECT_TRUE(info(Opcode::RC_SEND_MIDDLE).middle());
  EXPECT_TRUE(info(Opcode::RC_SEND_FIRST).first);
  EXPECT_FALSE(info(Opcode::RC_SEND_FIRST).last);
  EXPECT_TRUE(info(Opcode::UC_RDMA_WRITE_LAST_WITH_IMMEDIATE).last);
  EXPECT_TRUE(info(Opcode::RC_RDMA_READ_REQUEST).request);
  EXPECT_TRUE(info(Opcode::RC_RDMA_READ_RESPONSE_LAST).response());
  EXPECT_TRUE(info(Opcode::RC_ACKNOWLEDGE).response());
  EXPECT_FALSE(info(Opcode(0xff)).response());
  EXPECT_FALSE(info(Opcode(0xff)).middle());
}

}  // namespace
}  // namespace softhca::wire
