// Memory keys: the memory behind an LKey or RKey, and the check of every access through one.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "pcie/dma_space.h"
#include "rdma/block_signature.h"
#include "rdma/extent_list.h"
#include "rdma/key_pieces.h"
#include "rdma/key_shape.h"
#include "rdma/key_user.h"
#include "rdma/page_table.h"
#include "rdma/reasons.h"
#include "rdma/signature_errors.h"
#include "rdma/types.h"
#include "rdma/work_request.h"
#include "util/trace.h"
#include "util/work_budget.h"
#include "util/work_meter.h"

namespace softhca::rdma {

/// How a memory key maps its bytes.
enum class KeyForm : std::uint8_t {
  kBus,      ///< bus address = virtual address
  kPages,    ///< a list of pages
  kPieces,   ///< pieces of other memory keys (indirect)
  kNothing,  ///< reads as zeros; writes are dropped
};

/// One memory key, decoded by the device from its context. Contiguous pages are kept as extents.
/// The host address of the extent used last is cached until a DMA mapping changes. DmaSpace
/// translates the addresses of other extents.
class MemoryKey {
 public:
  struct Attributes {
    MKey key;
    Pd pd;
    std::uint8_t access = 0;      ///< Access bits
    std::optional<Qpn> only_qpn;  ///< only this QP may use it; unset: any
    std::uint64_t start = 0;      ///< first virtual address
    std::uint64_t length = 0;     ///< bytes
    bool whole_space = false;     ///< length64: every address from `start` on is in range
    bool free = false;            ///< invalidated: every access fails
    bool invalidatable = false;   ///< the peer's SEND with invalidate may free it
    /// Bus address of each page of 2^log_page_size bytes. `start` lies in the first page, at its
    /// own low log_page_size bits unless `page_offset` is set. Empty: bus address = virtual
    /// address.
    std::vector<pcie::Iova> pages;
    unsigned log_page_size = 12;
    /// The subset of `access` that each page grants. Empty: all of `access`.
    std::vector<std::uint8_t> page_access;
    /// Offset of `start` in the first page. Unset: start mod page size.
    std::optional<std::uint64_t> page_offset;
    /// If not empty, the key is indirect (KLM). Its bytes are those of the pieces in order, each
    /// reached through another key of the same PD. `pages` is then unused.
    std::vector<Sge> indirect;
    /// Form of the key while it has neither pages nor pieces.
    KeyForm form = KeyForm::kBus;
    /// Only load_page() sets pages, at any time and repeatedly. If an access finds a page absent or
    /// with too few rights, the fault may be resolved later (page_fault.h).
    bool reloadable = false;
    /// Each piece has 2^log_page_size bytes. Only set_piece() sets pieces, at any time.
    bool equal_pieces = false;
  };

  using Pieces = KeyPieces;
  using Pattern = KeyPattern;

  /// Pages and pieces may be appended one by one before the first access.
  explicit MemoryKey(Attributes attributes);
  /// Appends a page of 2^log_page_size bytes with the rights it grants. Only for keys with pages.
  /// After the first access, only for those of set_rest().
  void append_page(pcie::Iova page, std::uint8_t access = 0xFF);
  /// Frees most of the memory of many pages before destruction, until `work` is spent. True if the
  /// key can be destroyed now, for destroy_work(). The key must not be used afterwards.
  bool shrink(util::WorkBudget& work);
  /// Cost of destroying the key after shrink().
  std::int64_t destroy_work() const;
  /// Work (util::WorkBudget) of freeing an extent.
  static constexpr std::int64_t kExtentWork = 2;
  /// Sets the source of the pages that are not appended yet. Null: all are. Such a key grants all
  /// of its rights on every page, and is not reloadable.
  void set_rest(KeySource* source) { rest_ = source; }
  /// Sets page `number` of a reloadable key. Call refresh() before the next access.
  void load_page(std::size_t number, PageTable::Page page) { table_.set(number, page); }
  /// Replaces all pieces of an indirect key. Call refresh() before the next access.
  void load_pieces(Pieces pieces, Pattern pattern);
  /// Replaces the attributes except `form` and `reloadable`. Pages and pieces stay.
  void set_attributes(const Attributes& attributes);
  /// Drops all cached results. Call after pages, pieces or attributes have changed.
  void refresh();
  /// Allows signatures on blocks of the key's data. Call before the key is in a table.
  void make_signable() { signature_ = std::make_unique<BlockSignature>(); }
  /// Null unless make_signable() was called. Call refresh() after a change through it.
  BlockSignature* signature() { return signature_.get(); }
  bool is_signed() const { return signature_ != nullptr && signature_->exists(); }
  /// Sets whether the pieces may use the reserved LKey: true if the creator of the key may.
  void allow_reserved_pieces(bool allowed) { reserved_pieces_ = allowed; }
  /// Appends a piece to an indirect key. Only for keys with pieces. @pre piece.length != 0
  void append_piece(const Sge& piece);
  /// Sets piece `number` of a key with equal pieces. New pieces before it have no key.
  void set_piece(std::size_t number, std::uint64_t address, MKey key);

  /// The attributes, without pages and pieces.
  const Attributes& attributes() const { return attributes_; }
  KeyForm form() const { return attributes_.form; }
  std::size_t pieces() const { return pieces_.size(); }
  MKey key() const { return attributes_.key; }
  bool is_free() const { return attributes_.free; }
  /// True if PD, rights and range are the only checks of an access.
  bool is_plain() const { return plain_; }
  /// True if the cost of an access depends on the number of pieces or pages that it covers.
  bool is_charged() const { return pages_differ_ || !pieces_.empty(); }

  /// Call before the key is in a table.
  void set_key(MKey key) { attributes_.key = key; }
  void set_free(bool free) {
    attributes_.free = free;
    update_plain();
  }

 private:
  friend class KeyTable;
  friend class SignatureMover;
  /// Limit on the pages of a reloadable key that one access joins to an extent.
  static constexpr std::size_t kRunMax = 64;
  /// Pages and extents that one check inspects. The packets of a longer message check the rest.
  static constexpr std::uint64_t kLookMax = 512;

  /// The virtual address of offset 0.
  std::uint64_t base() const { return attributes_.start; }
  /// Bytes of one pass over all pieces.
  std::uint64_t turn_length() const {
    if (!attributes_.equal_pieces) return indirect_ends_.empty() ? 0 : indirect_ends_.back();
    return std::uint64_t{pieces_.size()} << attributes_.log_page_size;
  }
  /// The piece that holds `offset` of a turn; pieces() or more if there is none.
  std::size_t find_piece(std::uint64_t offset) const;
  /// A piece, and the offset of its first byte.
  struct Placed {
    Sge sge;
    std::uint64_t begin;
  };
  Placed piece(std::size_t number) const;
  void update_plain() {
    const auto& a = attributes_;
    plain_ = !traced_ && !a.free && !a.only_qpn && !a.whole_space && !pages_differ_ && !is_signed();
  }
  /// Offset of the first byte in the first page of a reloadable key.
  std::uint64_t first_page_offset() const {
    return attributes_.start & ((std::uint64_t{1} << attributes_.log_page_size) - 1);
  }
  /// Makes last_extent_ the extent that holds `offset`. False if there is none.
  bool seek(std::uint64_t offset) {
    // Payload is read from start to end, so the extent is nearly always that of the last access.
    return offset - last_extent_.offset < last_extent_.size || search_extent(offset);
  }
  bool search_extent(std::uint64_t offset);
  /// The host address of last_extent_. Null unless the extent is one piece of local memory that may
  /// be read and written.
  std::byte* extent_host(const pcie::DmaSpace& dma) {
    return host_generation_ == dma.generation() ? host_ : find_extent_host(dma);
  }
  std::byte* find_extent_host(const pcie::DmaSpace& dma);
  /// True if every page of [offset, offset + length) grants `access`, as far as kLookMax allows.
  /// Adds the number of pages and extents inspected to `looked_at`.
  bool pages_grant(std::uint64_t offset, std::uint64_t length, std::uint8_t access,
                   std::uint64_t& looked_at);

  bool search_page(std::uint64_t offset);
  bool search_rest(std::uint64_t offset);

  Attributes attributes_;
  ExtentList extents_;
  PageTable table_;                           ///< reloadable keys only, instead of extents_
  std::vector<Sge> pieces_;                   ///< indirect keys only
  std::vector<std::uint64_t> indirect_ends_;  ///< end offset of each piece; empty for equal pieces
  Pattern pattern_;
  std::unique_ptr<BlockSignature> signature_;
  std::size_t last_hit_ = 0;
  Extent last_extent_{};       ///< extent number last_hit_; initially empty
  std::byte* host_ = nullptr;  ///< host address of last_extent_, see extent_host()
  std::uint64_t host_generation_ = 0;
  std::uint64_t skip_ = 0;  ///< bytes before the key in pages not yet appended
  bool reserved_pieces_ = false;
  bool pages_differ_ = false;  ///< not all pages grant all rights of the key
  bool traced_ = false;        ///< each access takes the slow path and is traced
  bool plain_ = false;         ///< common case: PD, rights and range are the only checks
  KeySource* rest_ = nullptr;  ///< source of the pages not yet appended; null: there are none
};

/// All memory keys of one HCA. The device owns the table, and all code that moves data uses it. A
/// lookup indexes an array.
class KeyTable {
 public:
  /// The three optional keys are not entries of the table:
  /// - `reserved_lkey` maps the whole bus address space, only for users with
  ///   KeyUser::reserved_lkey (IBTA 10.6.3.1).
  /// - `null_key`: a piece with this key is an absent page.
  /// - `dump_fill_key` allows every local access: it reads as zeros and drops writes.
  KeyTable(pcie::DmaSpace& dma, KeyShape shape, std::optional<MKey> reserved_lkey = {},
           std::optional<MKey> null_key = {}, std::optional<MKey> dump_fill_key = {});

  const KeyShape& shape() const { return shape_; }
  /// Sets the source, which check() calls for each key that is not in the table. Null: no source.
  void set_source(KeySource* source) { source_ = source; }
  /// Traces each access from now on. Call before the first key.
  void set_trace(util::Trace* trace) { trace_ = trace; }
  /// Sets the initial values of signatures. Null: no key has a signature.
  void set_signature_values(const SignatureValues* values) { signature_values_ = values; }

  /// @pre no key with this index exists
  MemoryKey& insert(MemoryKey::Attributes attributes) {
    return insert(std::make_unique<MemoryKey>(std::move(attributes)));
  }
  MemoryKey& insert(std::unique_ptr<MemoryKey> key);
  /// Erases the key with this index and any variant. False if there was no key.
  bool erase_index(std::uint32_t index) { return extract_index(index) != nullptr; }
  /// Same, and returns the key, to be freed later.
  std::unique_ptr<MemoryKey> extract_index(std::uint32_t index);
  /// Finds a key by index and variant. Null if there is none.
  MemoryKey* find(MKey key) {
    auto* found = find_index(shape_.index(key));
    return found != nullptr && found->key() == key ? found : nullptr;
  }
  /// Finds a key by index alone. Null if there is none.
  MemoryKey* find_index(std::uint32_t index) {
    return index < keys_.size() ? keys_[index].get() : nullptr;
  }

  /// Checks variant, state, PD, QP, rights and range of an access to [address, address + length).
  /// If pages have rights of their own, it checks only the first ones (MemoryKey::kLookMax).
  KeyCheck check(MKey key, const KeyUser& user, std::uint64_t address, std::uint64_t length,
                 std::uint8_t access) {
    // Nearly every key needs only the checks of PD, rights and range. If one fails here, the slow
    // path finds the reason.
    auto* found = find(key);
    if (found != nullptr && found->plain_) {
      const auto& a = found->attributes_;
      const auto offset = address - a.start;
      if (a.pd == user.pd && (a.access & access) == access && address >= a.start &&
          offset <= a.length && length <= a.length - offset) {
        return {found, Reason::kNone};
      }
    }
    return check_slow(key, user, address, length, access);
  }

  /// Host address of [address, address + length). Null unless the range is one piece of local
  /// memory, as it is for most packets. @pre check() has passed for this range
  std::byte* one_piece(MemoryKey& key, std::uint64_t address, std::uint64_t length,
                       pcie::DmaAccess access) {
    auto iova = address;
    if (key.attributes_.form == KeyForm::kPages) {
      const auto offset = address - key.base();
      if (!key.seek(offset)) return nullptr;
      const auto& extent = key.last_extent_;
      const auto skip = offset - extent.offset;
      if (length > extent.size - skip) return nullptr;
      if (auto* host = key.extent_host(dma_)) return host + skip;
      iova = extent.iova + skip;
    } else if (key.attributes_.form != KeyForm::kBus) {
      return nullptr;
    }
    return dma_.translate(iova, length, access);
  }
  /// The extent that was used last, up to the end of the key. Empty if it is not one piece of local
  /// memory, or if the key has checks beyond PD, rights and range.
  struct Window {
    std::uint64_t start = 0;  ///< its first address
    std::uint64_t size = 0;   ///< bytes
    std::byte* host = nullptr;
  };
  Window window(MemoryKey& key);
  /// Calls `visit(MemoryPiece)` for the pieces of [address, address + length) in order. False if a
  /// part cannot be reached. After check(), only indirect keys can fail here. @pre check() has
  /// passed for this range
  template <class Visit>
  bool for_each_piece(MemoryKey& key, std::uint64_t address, std::uint64_t length,
                      pcie::DmaAccess access, Visit&& visit) {
    fault_ = Reason::kMemoryUnreachable;
    return walk(key, address - key.base(), length, access, visit, 0);
  }
  /// Why the last read(), write() or for_each_piece() failed.
  Reason fault() const { return fault_; }

  /// Copies out of, or into, the memory behind a key. False if for_each_piece() would return false,
  /// or if the DMA fails. A wrong signature is no failure: all bytes are copied, and
  /// signature_errors() has one more entry.
  bool read(MemoryKey& key, std::uint64_t address, std::span<std::byte> out);
  bool write(MemoryKey& key, std::uint64_t address, std::span<const std::byte> in);

  SignatureErrors& signature_errors() { return signature_errors_; }

  pcie::DmaSpace& dma() { return dma_; }

  /// The work that the charge of a packet or request does not include: pieces of indirect keys,
  /// whose number a guest chooses; memory reached by messages; and what users of keys charge.
  util::WorkMeter& work() { return work_; }
  /// Changes whenever a key leaves the table or is changed. While it stays the same, a pointer to a
  /// key is valid and the key unchanged, except that it may have become free.
  std::uint64_t generation() const { return generation_; }
  /// True if there is a key whose accesses may add work per packet.
  bool has_charged() const { return charged_ != 0; }
  /// True if `key` is such a key. @pre has_charged()
  bool is_charged(MKey key) {
    const auto* found = find(key);
    return found != nullptr && found->is_charged();
  }

  /// Calls `make` to change a key of the table. Callers must then look up the key again.
  template <class Make>
  void change(MemoryKey& key, Make&& make) {
    charged_ -= key.is_charged();
    make();
    charged_ += key.is_charged();
    ++generation_;
  }
  /// Removes the key with this index from the table. @pre it exists
  std::unique_ptr<MemoryKey> take(std::uint32_t index) {
    charged_ -= keys_[index]->is_charged();
    ++generation_;
    return std::move(keys_[index]);
  }
  /// Tears down the table: destroys keys until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);

 private:
  friend class SignatureMover;
  [[gnu::noinline]] KeyCheck check_slow(MKey key, const KeyUser& user, std::uint64_t address,
                                        std::uint64_t length, std::uint8_t access);
  KeyCheck judge(MKey key, const KeyUser& user, std::uint64_t address, std::uint64_t length,
                 std::uint8_t access);
  void note(const KeyCheck& check, MKey key, std::uint64_t address, std::uint64_t length,
            std::uint8_t access);

  // read() and write() of an indirect key.
  bool read_pieces(MemoryKey& key, std::uint64_t offset, std::span<std::byte> out);
  bool write_pieces(MemoryKey& key, std::uint64_t offset, std::span<const std::byte> in);
  static bool signed_range(const MemoryKey& key, std::uint64_t address, std::uint64_t length);

  template <class Visit>
  bool walk(MemoryKey& key, std::uint64_t offset, std::uint64_t length, pcie::DmaAccess access,
            Visit& visit, unsigned depth);
  template <class Visit>
  bool walk_indirect(MemoryKey& key, std::uint64_t offset, std::uint64_t length,
                     pcie::DmaAccess access, Visit& visit, unsigned depth);
  /// Walks a key that reads as zeros.
  template <class Visit>
  static bool walk_nothing(std::uint64_t length, pcie::DmaAccess access, Visit& visit);
  /// Calls `visit` for each piece of local memory in [iova, iova + length). From the first byte
  /// that is not local, the remaining range is one piece without a host address.
  template <class Visit>
  bool walk_bus(pcie::Iova iova, std::uint64_t length, pcie::DmaAccess access, Visit& visit);

  pcie::DmaSpace& dma_;
  KeyShape shape_;
  std::vector<std::unique_ptr<MemoryKey>> keys_;  ///< by index
  std::unique_ptr<MemoryKey> reserved_;
  std::optional<MKey> null_key_;
  std::unique_ptr<MemoryKey> dump_fill_;
  Reason fault_ = Reason::kNone;
  util::WorkMeter work_;
  std::uint64_t generation_ = 1;
  std::size_t charged_ = 0;  ///< number of keys with is_charged()
  util::Trace* trace_ = nullptr;
  KeySource* source_ = nullptr;
  const SignatureValues* signature_values_ = nullptr;
  SignatureErrors signature_errors_;
};

}  // namespace softhca::rdma

#include "rdma/memory_key_inl.h"
