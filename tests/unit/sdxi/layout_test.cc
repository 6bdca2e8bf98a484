// The formats of spec/sdxi against the document's tables: absolute bit positions, and no overlap
// between fields of a structure.
#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <tuple>

#include "sdxi/format.h"

namespace softhca::sdxi {
namespace {

/// Bits as the document counts them, from the start of the structure.
template <class F>
std::pair<unsigned, unsigned> place(F) {
  return {F::kOffset * 8 + F::kHi, F::kOffset * 8 + F::kLo};
}
using Bits = std::pair<unsigned, unsigned>;

TEST(SdxiLayoutTest, ContextStructuresAreWhereTheTablesSay) {
  EXPECT_EQ(place(spec::cxt_l1_ent::akey_sz), Bits(67, 64));
  EXPECT_EQ(place(spec::cxt_l1_ent::akey_ptr), Bits(127, 76));
  EXPECT_EQ(place(spec::cxt_l1_ent::cxt_pasid), Bits(147, 128));
  EXPECT_EQ(place(spec::cxt_l1_ent::max_buffer), Bits(151, 148));
  EXPECT_EQ(place(spec::cxt_l1_ent::opb_000_enb), Bits(191, 160));
  EXPECT_EQ(place(spec::cxt_ctl::ds_ring_sz), Bits(95, 64));
  EXPECT_EQ(place(spec::cxt_ctl::cxt_sts_ptr), Bits(191, 132));
  EXPECT_EQ(place(spec::cxt_ctl::write_index_ptr), Bits(255, 195));
  EXPECT_EQ(place(spec::cxt_sts::read_index), Bits(127, 64));
  EXPECT_EQ(place(spec::cst_blk::er), Bits(95, 95));
}

TEST(SdxiLayoutTest, KeysAreWhereTheTablesSay) {
  EXPECT_EQ(place(spec::akey_ent::intr_num), Bits(14, 4));
  EXPECT_EQ(place(spec::akey_ent::tgt_sfunc), Bits(31, 16));
  EXPECT_EQ(place(spec::akey_ent::pasid), Bits(51, 32));
  EXPECT_EQ(place(spec::akey_ent::ph), Bits(63, 62));
  EXPECT_EQ(place(spec::akey_ent::stag), Bits(79, 64));
  EXPECT_EQ(place(spec::akey_ent::rkey), Bits(111, 96));
  EXPECT_EQ(place(spec::rkey_ent::req_sfunc), Bits(31, 16));
}

TEST(SdxiLayoutTest, RecordsAndAdministrativeDescriptorsAreWhereTheTablesSay) {
  EXPECT_EQ(place(spec::errlog_hd_ent::buf), Bits(38, 36));
  EXPECT_EQ(place(spec::errlog_hd_ent::sub_step), Bits(43, 40));
  EXPECT_EQ(place(spec::errlog_hd_ent::re), Bits(46, 44));
  EXPECT_EQ(place(spec::errlog_hd_ent::err_class), Bits(367, 352));
  EXPECT_EQ(place(spec::dsc_cxt_start::dv), Bits(46, 46));
  EXPECT_EQ(place(spec::dsc_cxt_start::vf), Bits(47, 47));
  EXPECT_EQ(place(spec::dsc_cxt_start::db_value), Bits(191, 128));
  EXPECT_EQ(place(spec::dsc_cxt_stop::hs), Bits(45, 45));
  EXPECT_EQ(place(spec::dsc_akey_upd::akey_end), Bits(127, 112));
  EXPECT_EQ(place(spec::dsc_adm_intr::intr_num), Bits(107, 96));
  EXPECT_EQ(place(spec::dsc_dmab_repcopy::nsize), Bits(52, 44));
  EXPECT_EQ(place(spec::dsc_dmab_repcopy::num), Bits(287, 268));
  EXPECT_EQ(place(spec::dsc_atm::ret_data_ptr), Bits(383, 322));
}

template <class Layout>
void expect_no_overlap() {
  std::set<unsigned> used;
  for (const auto& field : Layout::kFields) {
    if (field.name == "addr0" && Layout::kName == "dsc_atm") continue;  // n and addr0_dst together
    for (unsigned bit = field.offset * 8 + field.lo; bit <= field.offset * 8 + field.hi; ++bit) {
      EXPECT_TRUE(used.insert(bit).second) << Layout::kName << "." << field.name << " bit " << bit;
      EXPECT_LT(bit, Layout::kSize * 8);
    }
  }
}

TEST(SdxiLayoutTest, FieldsDoNotOverlap) {
  const auto all = []<class... L>(std::tuple<L...>*) { (expect_no_overlap<L>(), ...); };
  all(static_cast<spec::mmio_structures*>(nullptr));
  all(static_cast<spec::context_structures*>(nullptr));
  all(static_cast<spec::keys_structures*>(nullptr));
  all(static_cast<spec::error_log_structures*>(nullptr));
  all(static_cast<spec::descriptor_structures*>(nullptr));
}

}  // namespace
}  // namespace softhca::sdxi
