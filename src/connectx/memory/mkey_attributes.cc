#include "connectx/memory/mkey_attributes.h"

#include "util/bits.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using MkeyLayout = spec::connectx::mkey_context;
using Mtt = spec::connectx::mtt_entry;
using AccessMode = spec::connectx::mkey_access_mode;

constexpr std::uint32_t kAnyQpn = 0xFFFFFF;
constexpr pcie::Iova kAlignmentMask = rdma::PageTable::kAlignment - 1;

std::uint8_t access_rights(util::View<MkeyLayout> context) {
  unsigned access = 0;
  if (context.get(MkeyLayout::lr) != 0) access |= rdma::kLocalRead;
  if (context.get(MkeyLayout::lw) != 0) access |= rdma::kLocalWrite;
  if (context.get(MkeyLayout::rr) != 0) access |= rdma::kRemoteRead;
  if (context.get(MkeyLayout::rw) != 0) access |= rdma::kRemoteWrite;
  if (context.get(MkeyLayout::a) != 0) access |= rdma::kRemoteAtomic;
  return static_cast<std::uint8_t>(access);
}

rdma::KeyForm form_of(AccessMode mode) {
  if (mode == AccessMode::PA) return rdma::KeyForm::kBus;
  return is_indirect(mode) ? rdma::KeyForm::kPieces : rdma::KeyForm::kPages;
}

}  // namespace

AccessMode access_mode(util::View<MkeyLayout> context) {
  return static_cast<AccessMode>(util::joined(context.get(MkeyLayout::access_mode_4_2),
                                              MkeyLayout::access_mode,
                                              context.get(MkeyLayout::access_mode)));
}

rdma::MemoryKey::Attributes attributes_of(util::View<MkeyLayout> context) {
  rdma::MemoryKey::Attributes attributes;
  attributes.pd = rdma::Pd(context.get(MkeyLayout::pd));
  attributes.access = access_rights(context);
  if (const auto qpn = context.get(MkeyLayout::qpn); qpn != kAnyQpn) {
    attributes.only_qpn = rdma::Qpn(qpn);
  }
  attributes.start = context.get(MkeyLayout::start_addr);
  attributes.length = context.get(MkeyLayout::len);
  attributes.whole_space = context.get(MkeyLayout::length64) != 0;
  attributes.free = context.get(MkeyLayout::free) != 0;
  attributes.invalidatable = context.get(MkeyLayout::en_rinval) != 0;
  attributes.log_page_size = context.get(MkeyLayout::log_page_size);
  attributes.form = form_of(access_mode(context));
  attributes.equal_pieces = access_mode(context) == AccessMode::KSM;
  return attributes;
}

rdma::PageTable::Page page_of(util::View<Mtt> entry) {
  const bool read = entry.get(Mtt::rd_en) != 0;
  const bool write = entry.get(Mtt::wr_en) != 0;
  unsigned rights = 0;
  if (read) rights |= rdma::kLocalRead | rdma::kRemoteRead;
  if (write) rights |= rdma::kLocalWrite | rdma::kRemoteWrite;
  if (read && write) rights |= rdma::kRemoteAtomic;
  return {.address = util::load_be64(entry.bytes().data()) & ~kAlignmentMask,
          .access = static_cast<std::uint8_t>(rights)};
}

}  // namespace softhca::connectx
