#include "rdma/memory_key.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "pcie/absent_pages.h"
#include "rdma/signature_mover.h"

namespace softhca::rdma {

MemoryKey::MemoryKey(Attributes attributes) : attributes_(std::move(attributes)) {
  for (const auto& piece : std::exchange(attributes_.indirect, {})) append_piece(piece);
  const auto& pages = attributes_.pages;
  const auto& access = attributes_.page_access;
  const auto page_size = std::uint64_t{1} << attributes_.log_page_size;
  skip_ = attributes_.page_offset.value_or(attributes_.start & (page_size - 1));
  for (std::size_t i = 0; pieces_.empty() && i < pages.size(); ++i) {
    append_page(pages[i], access.empty() ? 0xFF : access[i]);
  }
  update_plain();
}

void MemoryKey::append_page(pcie::Iova page, std::uint8_t access) {
  attributes_.form = KeyForm::kPages;
  const auto page_size = std::uint64_t{1} << attributes_.log_page_size;
  const auto skip = std::min(skip_, page_size);
  skip_ -= skip;
  if (skip == page_size) return;
  pages_differ_ = pages_differ_ || (access & kEveryAccess) != kEveryAccess;
  extents_.append(page + skip, page_size - skip, access);
}

bool MemoryKey::shrink(util::WorkBudget& work) {
  while (extents_.size() > ExtentList::kChunk) {
    if (work.spent()) return false;
    extents_.drop_chunk();
    work.charge(ExtentList::kChunk * kExtentWork);
  }
  return table_.shrink(work);
}

std::int64_t MemoryKey::destroy_work() const {
  // A page of memory holds some 250 pieces, which are freed together.
  constexpr std::int64_t kDestroyWork = 200, kPieceWorkOfFree = 1;
  return kDestroyWork + static_cast<std::int64_t>(extents_.size()) * kExtentWork +
         static_cast<std::int64_t>(pieces_.size()) * kPieceWorkOfFree;
}

void MemoryKey::append_piece(const Sge& piece) {
  attributes_.form = KeyForm::kPieces;
  const auto end = indirect_ends_.empty() ? 0 : indirect_ends_.back();
  indirect_ends_.push_back(end + piece.length);
  pieces_.push_back(piece);
}

void MemoryKey::load_pieces(Pieces pieces, Pattern pattern) {
  assert(attributes_.form == KeyForm::kPieces);
  assert(pieces.list.size() == pieces.ends.size());
  pieces_ = std::move(pieces.list);
  indirect_ends_ = std::move(pieces.ends);
  pattern_ = std::move(pattern);
}

void MemoryKey::set_piece(std::size_t number, std::uint64_t address, MKey key) {
  assert(attributes_.equal_pieces);
  if (number >= pieces_.size()) pieces_.resize(number + 1, Sge{0, 0, MKey{}});
  pieces_[number] = {address, 0, key};
}

std::size_t MemoryKey::find_piece(std::uint64_t offset) const {
  if (attributes_.equal_pieces) return offset >> attributes_.log_page_size;
  const auto& ends = indirect_ends_;
  return static_cast<std::size_t>(std::ranges::upper_bound(ends, offset) - ends.begin());
}

MemoryKey::Placed MemoryKey::piece(std::size_t number) const {
  auto sge = pieces_[number];
  if (!attributes_.equal_pieces) return {sge, indirect_ends_[number] - sge.length};
  sge.length = std::uint32_t{1} << attributes_.log_page_size;
  return {sge, std::uint64_t{number} << attributes_.log_page_size};
}

void MemoryKey::set_attributes(const Attributes& attributes) {
  const auto form = attributes_.form;
  const bool reloadable = attributes_.reloadable;
  attributes_ = attributes;
  attributes_.form = form;
  attributes_.reloadable = reloadable;
}

void MemoryKey::refresh() {
  last_extent_ = {};
  last_hit_ = 0;
  host_generation_ = 0;
  if (signature_ != nullptr) signature_->forget_progress();
  if (attributes_.reloadable) {
    const auto log_size = attributes_.log_page_size;
    const auto page_size = std::uint64_t{1} << log_size;
    const auto end = (first_page_offset() + (attributes_.length & (page_size - 1))) + page_size - 1;
    pages_differ_ = attributes_.whole_space ||
                    !table_.all_grant_all((attributes_.length >> log_size) + (end >> log_size));
  }
  update_plain();
}

bool MemoryKey::search_page(std::uint64_t offset) {
  const auto log_size = attributes_.log_page_size;
  const auto skip = first_page_offset();
  const auto number = (skip + offset) >> log_size;
  const auto page = table_.get(number);
  if (page.access == 0) return false;
  const auto pages = table_.run(number, log_size, kRunMax);
  // `start` may lie inside the first page.
  const auto before = number == 0 ? skip : 0;
  last_extent_ = {.offset = (number << log_size) - (skip - before),
                  .size = (std::uint64_t{pages} << log_size) - before,
                  .iova = page.address + before,
                  .access = page.access};
  host_generation_ = 0;
  return true;
}

/// Finds a page that is not appended yet.
bool MemoryKey::search_rest(std::uint64_t offset) {
  const auto log_size = attributes_.log_page_size;
  const auto skip = first_page_offset();
  const auto number = (skip + offset) >> log_size;
  const auto page = rest_->bring_page(key(), number);
  if (!page) return false;
  last_extent_ = {.offset = (number << log_size) - skip,
                  .size = std::uint64_t{1} << log_size,
                  .iova = *page,
                  .access = kEveryAccess};
  host_generation_ = 0;
  return true;
}

bool MemoryKey::search_extent(std::uint64_t offset) {
  if (attributes_.reloadable) return search_page(offset);
  auto i = last_hit_ + 1;
  if (i >= extents_.size() || offset - extents_[i].offset >= extents_[i].size) {
    i = extents_.find(offset);
  }
  if (i == extents_.size()) return rest_ != nullptr && search_rest(offset);
  last_extent_ = extents_[i];
  last_hit_ = i;
  host_generation_ = 0;
  return true;
}

std::byte* MemoryKey::find_extent_host(const pcie::DmaSpace& dma) {
  host_ = dma.translate(last_extent_.iova, last_extent_.size, pcie::DmaAccess::kReadWrite);
  host_generation_ = dma.generation();
  return host_;
}

bool MemoryKey::pages_grant(std::uint64_t offset, std::uint64_t length, std::uint8_t access,
                            std::uint64_t& looked_at) {
  for (const auto end = offset + length; offset < end && looked_at < kLookMax;
       offset = last_extent_.offset + last_extent_.size) {
    const bool is_cached = offset - last_extent_.offset < last_extent_.size;
    // Without a page list, a gap is found at the access. In a reloadable key an absent page grants
    // nothing.
    if (!is_cached && !search_extent(offset)) return !attributes_.reloadable;
    // A search in a reloadable key joins pages to an extent.
    const bool joins = attributes_.reloadable && !is_cached;
    looked_at += joins ? 1 + (last_extent_.size >> attributes_.log_page_size) : 1;
    if ((last_extent_.access & access) != access) return false;
  }
  return true;
}

KeyTable::KeyTable(pcie::DmaSpace& dma, KeyShape shape, std::optional<MKey> reserved_lkey,
                   std::optional<MKey> null_key, std::optional<MKey> dump_fill_key)
    : dma_(dma), shape_(shape), null_key_(null_key) {
  const auto of_all_addresses = [](MKey key, KeyForm form) {
    MemoryKey::Attributes attributes;
    attributes.key = key;
    attributes.access = kLocalRead | kLocalWrite;
    attributes.whole_space = true;
    attributes.form = form;
    return std::make_unique<MemoryKey>(std::move(attributes));
  };
  if (reserved_lkey) reserved_ = of_all_addresses(*reserved_lkey, KeyForm::kBus);
  if (dump_fill_key) dump_fill_ = of_all_addresses(*dump_fill_key, KeyForm::kNothing);
}

MemoryKey& KeyTable::insert(std::unique_ptr<MemoryKey> key) {
  const auto index = shape_.index(key->key());
  if (index >= keys_.size()) keys_.resize(std::size_t{index} + 1);
  assert(keys_[index] == nullptr && "the device hands out each index once");
  charged_ += key->is_charged();
  key->traced_ = trace_ != nullptr;
  key->update_plain();
  keys_[index] = std::move(key);
  return *keys_[index];
}

bool KeyTable::dismantle(util::WorkBudget& work) {
  ++generation_;
  for (; !keys_.empty(); keys_.pop_back()) {
    if (work.spent()) return false;
    work.charge(1);
    const auto& key = keys_.back();
    if (key == nullptr) continue;
    if (!key->shrink(work)) return false;
    work.charge(key->destroy_work());
    charged_ -= key->is_charged();
  }
  return true;
}

std::unique_ptr<MemoryKey> KeyTable::extract_index(std::uint32_t index) {
  const auto* key = find_index(index);
  if (key == nullptr) return nullptr;
  charged_ -= key->is_charged();
  ++generation_;
  return std::move(keys_[index]);
}

KeyCheck KeyTable::check_slow(MKey key, const KeyUser& user, std::uint64_t address,
                              std::uint64_t length, std::uint8_t access) {
  const auto index = shape_.index(key);
  if (source_ != nullptr && find_index(index) == nullptr) source_->bring(index);
  const auto result = judge(key, user, address, length, access);
  if (trace_ != nullptr) note(result, key, address, length, access);
  return result;
}

/// Traces the check of an access, with the bus address of its first byte if the key has one.
void KeyTable::note(const KeyCheck& check, MKey key, std::uint64_t address, std::uint64_t length,
                    std::uint8_t access) {
  auto iova = address;
  if (check && check.key->form() == KeyForm::kPages) {
    const auto offset = address - check.key->base();
    const auto& extent = check.key->last_extent_;
    iova = check.key->seek(offset) ? extent.iova + (offset - extent.offset) : 0;
  }
  trace_->note(util::TraceStep::kKey, describe(check.reason).text,
               {{"key", key.value()},
                {"address", address},
                {"bytes", length},
                {"access", access},
                {"physical_address", check ? iova : 0}});
}

KeyCheck KeyTable::judge(MKey key, const KeyUser& user, std::uint64_t address, std::uint64_t length,
                         std::uint8_t access) {
  const auto refused = [](Reason reason) { return KeyCheck{nullptr, reason}; };
  auto* found = find(key);
  if (found == nullptr && dump_fill_ != nullptr && key == dump_fill_->key()) {
    if ((dump_fill_->attributes_.access & access) != access) return refused(Reason::kKeyRights);
    return {dump_fill_.get(), Reason::kNone};
  }
  if (found == nullptr) {
    if (reserved_ == nullptr || key != reserved_->key()) return refused(Reason::kKeyUnknown);
    if (!user.reserved_lkey) return refused(Reason::kReservedKeyForbidden);
    if (address + length < address) return refused(Reason::kKeyRange);
    // The reserved key has no remote rights.
    if ((reserved_->attributes_.access & access) != access) return refused(Reason::kKeyRights);
    return {reserved_.get(), Reason::kNone};
  }
  const auto& a = found->attributes_;
  if (a.free) return refused(Reason::kKeyInvalidated);
  if (a.pd != user.pd) return refused(Reason::kKeyOtherPd);
  if (a.only_qpn && *a.only_qpn != user.qpn) return refused(Reason::kKeyOtherQp);
  if (found->is_signed()) {
    if (!user.may_sign || (access & kRemoteAtomic) != 0) return refused(Reason::kKeySigned);
    if (!signed_range(*found, address, length)) return refused(Reason::kKeyRange);
  } else if (a.whole_space) {
    if (address < a.start || address + length < address) return refused(Reason::kKeyRange);
  } else {
    const auto offset = address - a.start;
    if (address < a.start || offset > a.length || length > a.length - offset) {
      return refused(Reason::kKeyRange);
    }
  }
  if ((a.access & access) != access) return refused(Reason::kKeyRights);
  if (found->pages_differ_) {
    // The key's owner chooses the number of pages, so charge for them.
    std::uint64_t looked_at = 0;
    const bool granted = found->pages_grant(address - found->base(), length, access, looked_at);
    work_.charge(static_cast<std::int64_t>(looked_at) * MemoryKey::kExtentWork);
    if (!granted) return refused(a.reloadable ? Reason::kPageAbsent : Reason::kKeyRights);
  }
  return {found, Reason::kNone};
}

/// Addresses are wire offsets; the key's length is that of its memory.
bool KeyTable::signed_range(const MemoryKey& key, std::uint64_t address, std::uint64_t length) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 48;  // no format: far from any overflow
  const auto& a = key.attributes_;
  const auto offset = address - a.start;
  if (address < a.start || offset > kEnd || length > kEnd) return false;
  return key.signature_->memory_end(offset + length) <= a.length;
}

KeyTable::Window KeyTable::window(MemoryKey& key) {
  const auto& extent = key.last_extent_;
  const auto length = key.attributes_.length;
  if (!key.plain_ || key.form() != KeyForm::kPages || extent.offset >= length) return {};
  auto* const host = key.extent_host(dma_);
  if (host == nullptr) return {};
  return {key.base() + extent.offset, std::min(extent.size, length - extent.offset), host};
}

bool KeyTable::read(MemoryKey& key, std::uint64_t address, std::span<std::byte> out) {
  if (key.is_signed()) return SignatureMover(*this, key).read(address - key.base(), out);
  return read_pieces(key, address - key.base(), out);
}

bool KeyTable::write(MemoryKey& key, std::uint64_t address, std::span<const std::byte> in) {
  if (key.is_signed()) return SignatureMover(*this, key).write(address - key.base(), in);
  return write_pieces(key, address - key.base(), in);
}

bool KeyTable::read_pieces(MemoryKey& key, std::uint64_t offset, std::span<std::byte> out) {
  bool ok = true;
  auto take = [&](const MemoryPiece& piece) {
    if (piece.host != nullptr) {
      std::memcpy(out.data(), piece.host, piece.size);
    } else {
      ok = ok && dma_.read(piece.iova, out.first(piece.size));
      work_.charge(pcie::RemoteAccesses::take_work());
    }
    out = out.subspan(piece.size);
  };
  fault_ = Reason::kMemoryUnreachable;
  const bool walked = walk(key, offset, out.size(), pcie::DmaAccess::kRead, take, 0);
  if (!ok && pcie::AbsentPages::take()) fault_ = Reason::kPageNotBrought;
  return walked && ok;
}

bool KeyTable::write_pieces(MemoryKey& key, std::uint64_t offset, std::span<const std::byte> in) {
  bool ok = true;
  auto put = [&](const MemoryPiece& piece) {
    if (piece.host != nullptr) {
      // memmove: the source may be the same memory, as a QP may send to itself.
      std::memmove(piece.host, in.data(), piece.size);
    } else if (!piece.dropped) {
      ok = ok && dma_.write(piece.iova, in.first(piece.size));
      work_.charge(pcie::RemoteAccesses::take_work());
    }
    in = in.subspan(piece.size);
  };
  fault_ = Reason::kMemoryUnreachable;
  const bool walked = walk(key, offset, in.size(), pcie::DmaAccess::kWrite, put, 0);
  if (!ok && pcie::AbsentPages::take()) fault_ = Reason::kPageNotBrought;
  return walked && ok;
}

}  // namespace softhca::rdma
