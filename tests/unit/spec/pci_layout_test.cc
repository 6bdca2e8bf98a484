// The formats of PCI functions against the document, byte for byte.
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <utility>

#include "spec/pci/config.h"
#include "spec/pci/registers.h"
#include "spec/structures.h"

namespace softhca::spec::pci {
namespace {

using test::bytes_of;

TEST(PciLayout, TheHeaderIsThatOfType0) {
  using H = config_header;
  EXPECT_EQ(bytes_of<H>(H::vendor_id, 0x15b3), "00=b3 01=15");
  EXPECT_EQ(bytes_of<H>(H::device_id, 0x1013), "02=13 03=10");
  EXPECT_EQ(bytes_of<H>(H::memory_space_enable), "04=02");
  EXPECT_EQ(bytes_of<H>(H::bus_master_enable), "04=04");
  EXPECT_EQ(bytes_of<H>(H::parity_error_response), "04=40");
  EXPECT_EQ(bytes_of<H>(H::serr_enable), "05=01");
  EXPECT_EQ(bytes_of<H>(H::interrupt_disable), "05=04");
  EXPECT_EQ(bytes_of<H>(H::capabilities_list), "06=10");
  EXPECT_EQ(bytes_of<H>(H::master_data_parity_error), "07=01");
  EXPECT_EQ(bytes_of<H>(H::errors), "07=f8");
  EXPECT_EQ(bytes_of<H>(H::class_code, 0x020000), "0b=02");
  EXPECT_EQ(bytes_of<H>(H::subsystem_id, 0x0013), "2e=13");
  EXPECT_EQ(bytes_of<H>(H::capabilities_pointer), "34=ff");
}

TEST(PciLayout, ExpressCapability) {
  using E = express_capability;
  EXPECT_EQ(bytes_of<E>(E::version, 2), "02=02");
  EXPECT_EQ(bytes_of<E>(E::flr_capable), "07=10");
  EXPECT_EQ(bytes_of<E>(E::initiate_flr), "09=80");
  EXPECT_EQ(bytes_of<E>(E::errors_detected), "0a=0f");
  EXPECT_EQ(bytes_of<E>(E::max_link_width, 16), "0d=01");
  EXPECT_EQ(bytes_of<E>(E::link_speed, 3), "12=03");
  EXPECT_EQ(bytes_of<E>(E::atomic_requester_enable), "28=40");
  EXPECT_EQ(bytes_of<E>(E::target_link_speed, 3), "30=03");
}

TEST(PciLayout, CapabilitiesOfInterrupts) {
  EXPECT_EQ(bytes_of<msix_capability>(msix_capability::enable), "03=80");
  EXPECT_EQ(bytes_of<msix_capability>(msix_capability::function_mask), "03=40");
  EXPECT_EQ(bytes_of<msix_capability>(msix_capability::table_size), "02=ff 03=07");
  EXPECT_EQ(bytes_of<msix_table_entry>(msix_table_entry::mask), "0c=01");
  EXPECT_EQ(bytes_of<msi_capability>(msi_capability::multiple_message_capable), "02=0e");
  EXPECT_EQ(bytes_of<msi_capability>(msi_capability::multiple_message_enable), "02=70");
  EXPECT_EQ(bytes_of<msi_capability>(msi_capability::per_vector_masking), "03=01");
}

TEST(PciLayout, RegistersOf16BitsAreHalvesOfWords) {
  EXPECT_EQ(register_of(config_header::bus_master_enable), 4u);
  EXPECT_EQ(register_of(config_header::capabilities_list), 6u);
  EXPECT_EQ(bits_of(config_header::capabilities_list), 0x10);
  EXPECT_EQ(register_of(msi_capability::enable), 2u);
  EXPECT_EQ(bits_of(msi_capability::multiple_message_enable, 5), 0x50);
  EXPECT_EQ(value_of(0xC007, msix_capability::table_size), 7);
  EXPECT_EQ(byte_of(vpd_capability::flag), 3u);
}

TEST(PciLayout, FieldsDoNotOverlap) {
  for (const auto& s : test::structures_of<config_structures>()) {
    EXPECT_FALSE(s.section.empty()) << s.name;
    std::set<std::pair<std::size_t, unsigned>> taken;
    for (const auto& field : s.fields) {
      for (unsigned bit = field.lo; bit <= field.hi; ++bit) {
        const std::size_t word = field.offset + bit / 32 * 4;
        EXPECT_LT(word, s.size) << s.name << "." << field.name;
        EXPECT_TRUE(taken.emplace(word, bit % 32).second) << s.name << "." << field.name;
      }
    }
  }
}

}  // namespace
}  // namespace softhca::spec::pci
