#include "connectx/memory/signature_format.h"

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;
using Bsf = block_signature_format;
using Inline = bsf_inline;
using rdma::BlockFormat;

/// Decodes a block size. False if there is no such size.
bool take_block(std::uint32_t selector, BlockFormat& format) {
  switch (static_cast<bsf_block>(selector)) {
    case bsf_block::NONE:
      format.block = 0;
      return true;
    case bsf_block::BYTES_512:
      format.block = 512;
      return true;
    case bsf_block::BYTES_520:
      format.block = 520;
      return true;
    case bsf_block::BYTES_4096:
      format.block = 4096;
      return true;
    case bsf_block::BYTES_4160:
      format.block = 4160;
      return true;
  }
  return false;
}

bool take_tags(util::View<Inline> tags, BlockFormat& format) {
  const auto type = static_cast<bsf_dif_type>(tags.get(Inline::sig_type));
  if (tags.get(Inline::valid) == 0 || tags.get(Inline::repeat) == 0) return false;
  if (type != bsf_dif_type::CRC && type != bsf_dif_type::INTERNET_CHECKSUM) return false;
  format.guard = type == bsf_dif_type::CRC ? rdma::Guard::kCrcT10Dif : rdma::Guard::kIpChecksum;
  format.seed_ones = tags.get(Inline::seed) != 0;
  format.refresh = tags.get(Inline::refresh) != 0;
  format.app_tag = static_cast<std::uint16_t>(tags.get(Inline::app_tag));
  format.ref_tag = tags.get(Inline::ref_tag);
  format.ref_tag_counts = tags.get(Inline::inc_ref_tag) != 0;
  format.app_mask = static_cast<std::uint16_t>(tags.get(Inline::app_mask));
  switch (static_cast<bsf_escape>(tags.get(Inline::escape))) {
    case bsf_escape::NONE:
      format.escape = BlockFormat::Escape::kNone;
      return true;
    case bsf_escape::APP_TAG:
      format.escape = BlockFormat::Escape::kAppTag;
      return true;
    case bsf_escape::APP_AND_REF_TAG:
      format.escape = BlockFormat::Escape::kAppAndRefTag;
      return true;
  }
  return false;
}

/// The fields with the format of a side that is a plain CRC.
struct CrcFields {
  std::uint32_t format;  ///< 0: the inline section has the format
  std::uint32_t kind;
  bool repeats;
  bool seed_zero;
};

bool take_kind(const CrcFields& crc, util::View<Inline> tags, BlockFormat& format) {
  if (!format.exists()) return true;
  if (crc.format == 0) return take_tags(tags, format);
  if (static_cast<bsf_crc>(crc.kind) != bsf_crc::CRC32 || !crc.repeats) return false;
  format.guard = rdma::Guard::kCrc32;
  format.seed_ones = !crc.seed_zero;
  return true;
}

}  // namespace

bool decode_signature(util::View<Bsf> bsf, rdma::SignatureRules& rules) {
  rules = {};
  if (static_cast<bsf_size>(bsf.get(Bsf::size)) != bsf_size::WITH_INLINE) return false;
  // Signatures of whole transactions are not implemented.
  if (bsf.get(Bsf::t_init_gen_pro_size) != 0 || bsf.get(Bsf::epi_size) != 0 ||
      bsf.get(Bsf::w_tfs_psv) != 0 || bsf.get(Bsf::m_tfs_psv) != 0) {
    return false;
  }
  auto& memory = rules.memory;
  auto& wire = rules.wire;
  memory.value = bsf.get(Bsf::m_psv);
  wire.value = bsf.get(Bsf::w_psv);
  rules.check_mask = static_cast<std::uint8_t>(bsf.get(Bsf::check_byte_mask));
  rules.same_structure = bsf.get(Bsf::same_block_structure) != 0;
  if (!take_block(bsf.get(Bsf::mem_block_selector), memory)) return false;
  if (rules.same_structure) {
    if (!memory.exists()) return false;
    wire.block = memory.block;
    rules.copy_mask = static_cast<std::uint8_t>(bsf.get(Bsf::copy_byte_mask));
  } else if (!take_block(bsf.get(Bsf::wire_block_selector), wire)) {
    return false;
  }
  const CrcFields memory_crc{bsf.get(Bsf::m_format), bsf.get(Bsf::m_crc),
                             bsf.get(Bsf::m_crc_repeat) != 0, bsf.get(Bsf::m_crc_seed_zero) != 0};
  const CrcFields wire_crc{bsf.get(Bsf::w_format), bsf.get(Bsf::w_crc),
                           bsf.get(Bsf::w_crc_repeat) != 0, bsf.get(Bsf::w_crc_seed_zero) != 0};
  if (!take_kind(memory_crc, bsf.get(Bsf::m_inline), memory) ||
      !take_kind(wire_crc, bsf.get(Bsf::w_inline), wire)) {
    return false;
  }
  return !rules.same_structure || memory.protection() == wire.protection();
}

}  // namespace softhca::connectx
