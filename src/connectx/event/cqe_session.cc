#include "connectx/event/cqe_session.h"

#include <algorithm>

#include "spec/connectx/cqe.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using CqeLayout = spec::connectx::cqe64;
using Hash = spec::connectx::mini_cqe_hash;
using Checksum = spec::connectx::mini_cqe_checksum;
using spec::connectx::cqe_format;
using spec::connectx::cqe_opcode;
using Bytes = std::array<std::byte, CqeSession::kCqeSize>;

/// The CQE with zeros in all fields that may differ within a session. The 8-byte entries keep
/// either the hash or the checksum. The other one and the timestamp are lost.
Bytes same_part(CqeSession::Cqe cqe, CqeSession::Format format) {
  Bytes bytes;
  std::ranges::copy(cqe, bytes.begin());
  const util::MutableView<CqeLayout> view(bytes);
  view.set(CqeLayout::wqe_counter, 0);
  view.set(CqeLayout::byte_cnt, 0);
  view.set(CqeLayout::timestamp, 0);
  view.set(CqeLayout::rx_hash_result, 0);
  view.set(CqeLayout::checksum, 0);
  if (format == CqeSession::Format::CHECKSUM) view.set(CqeLayout::rx_hash_type, 0);
  return bytes;
}

}  // namespace

bool CqeSession::is_kind(Cqe cqe) {
  const util::View<CqeLayout> view(cqe);
  return static_cast<cqe_opcode>(view.get(CqeLayout::opcode)) == cqe_opcode::RESPONDER_SEND &&
         static_cast<cqe_format>(view.get(CqeLayout::cqe_format)) == cqe_format::NO_INLINE &&
         view.get(CqeLayout::se) == 0 && view.get(CqeLayout::lro_num_seg) == 0;
}

bool CqeSession::takes(Cqe cqe) const {
  if (count_ == cqes_max_) return false;
  // WQE counters must be consecutive, because software derives all of them from the title's.
  const auto first = util::View<CqeLayout>(first_).get(CqeLayout::wqe_counter);
  const auto expected = (first + count_) & CqeLayout::wqe_counter.kMax;
  return util::View<CqeLayout>(cqe).get(CqeLayout::wqe_counter) == expected &&
         same_part(cqe, format_) == same_part(first_, format_);
}

void CqeSession::add(Cqe cqe) {
  const util::View<CqeLayout> view(cqe);
  if (count_ == 0) std::ranges::copy(cqe, first_.begin());
  const auto mini = std::span(minis_).subspan(std::size_t{count_} * kMiniSize, kMiniSize);
  std::ranges::fill(mini, std::byte{0});
  if (format_ == Format::CHECKSUM) {
    const util::MutableView<Checksum> out(mini);
    out.set(Checksum::checksum, view.get(CqeLayout::checksum));
    out.set(Checksum::byte_cnt, view.get(CqeLayout::byte_cnt));
  } else {
    const util::MutableView<Hash> out(mini);
    out.set(Hash::rx_hash_result, view.get(CqeLayout::rx_hash_result));
    out.set(Hash::byte_cnt, view.get(CqeLayout::byte_cnt));
  }
  ++count_;
}

std::array<std::byte, CqeSession::kCqeSize> CqeSession::title() const {
  auto title = first_;
  if (count_ < 2) return title;
  const util::MutableView<CqeLayout> view(title);
  view.set(CqeLayout::cqe_format, static_cast<std::uint32_t>(cqe_format::COMPRESSED));
  view.set(CqeLayout::byte_cnt, count_);
  return title;
}

}  // namespace softhca::connectx
