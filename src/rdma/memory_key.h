// Memory keys: what an LKey or RKey stands for, and the check of every access through one.
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
#include "rdma/types.h"
#include "rdma/work_request.h"
#include "util/trace.h"
#include "util/work_budget.h"

namespace softhca::rdma {

/// What the bytes of a memory key are.
enum class KeyForm : std::uint8_t {
  kBus,      ///< bus address = virtual address
  kPages,    ///< of a list
  kPieces,   ///< pieces of other keys
  kNothing,  ///< zeros; what is written is gone
};

/// One memory key, as the device decoded its context. Its pages are kept as extents where the bus
/// addresses are contiguous. The host address of the one that was used last is kept as long as no
/// mapping goes; DmaSpace finds the others.
class MemoryKey {
 public:
  struct Attributes {
    MKey key;
    Pd pd;
    std::uint8_t access = 0;      ///< Access bits
    std::optional<Qpn> only_qpn;  ///< the one QP that may use it; nothing: any
    std::uint64_t start = 0;      ///< first virtual address
    std::uint64_t length = 0;     ///< bytes
    bool whole_space = false;     ///< length64: every address from `start` on is in range
    bool free = false;            ///< invalidated: every access fails
    bool invalidatable = false;   ///< a SEND with invalidate of the peer may free it
    /// Bus address of each page of 2^log_page_size bytes; `start` lies in the first, at the same
    /// offset (its low log_page_size bits, see `page_offset`). Empty: bus address = virtual
    /// address.
    std::vector<pcie::Iova> pages;
    unsigned log_page_size = 12;
    /// What each page grants of the rights above (Access bits). Empty: all of them.
    std::vector<std::uint8_t> page_access;
    /// Where in the first page `start` lies. Nothing: start mod page size.
    std::optional<std::uint64_t> page_offset;
    /// Not empty: the key is indirect (KLM): its bytes are those of these pieces, one after the
    /// other, through other keys of the same PD. `pages` is then not used.
    std::vector<Sge> indirect;
    /// Of a key that has neither pages nor pieces yet.
    KeyForm form = KeyForm::kBus;
    /// Its pages come by load_page() alone, also later, and again. One that is not there, or does
    /// not grant what the key does, may come yet (page_fault.h).
    bool reloadable = false;
    /// Its pieces have 2^log_page_size bytes each, and come by set_piece() alone, also later.
    bool equal_pieces = false;
  };

  using Pieces = KeyPieces;
  using Pattern = KeyPattern;

  /// Pages and pieces may follow, one by one, before the first access.
  explicit MemoryKey(Attributes attributes);
  /// The next page, of 2^log_page_size bytes, and what it grants, in a key that has only such.
  void append_page(pcie::Iova page, std::uint8_t access = 0xFF);
  /// Gives back most of what many pages took, until `work` is spent, before the key goes. True: the
  /// rest goes at once. Nobody may use the key from then on.
  bool shrink(util::WorkBudget& work);
  /// What it costs to destroy the key then.
  std::int64_t destroy_work() const {
    return kDestroyWork + static_cast<std::int64_t>(pieces_.size()) * kExtentWork;
  }
  /// Page `number` of a reloadable key. refresh() is to follow before the next access.
  void load_page(std::size_t number, PageTable::Page page) { table_.set(number, page); }
  /// All pieces of an indirect key, instead of those before. Likewise.
  void load_pieces(Pieces pieces, Pattern pattern);
  /// Other attributes, without lists and form, which stay.
  void set_attributes(const Attributes& attributes);
  /// After its pages, pieces or attributes have changed: nothing is known of them any more.
  void refresh();
  /// Blocks of its data may have signatures. Before it is in a table.
  void make_signable() { signature_ = std::make_unique<BlockSignature>(); }
  /// Null unless they may. refresh() is to follow what changes it.
  BlockSignature* signature() { return signature_.get(); }
  bool is_signed() const { return signature_ != nullptr && signature_->exists(); }
  /// Whether its pieces may be of the reserved LKey: who told them may use that.
  void allow_reserved_pieces(bool allowed) { reserved_pieces_ = allowed; }
  /// The next piece of an indirect key, which has only such. @pre piece.length != 0
  void append_piece(const Sge& piece);
  /// Piece `number` of a key with equal pieces; those between the end and it are of no key.
  void set_piece(std::size_t number, std::uint64_t address, MKey key);

  /// Without pages and pieces.
  const Attributes& attributes() const { return attributes_; }
  KeyForm form() const { return attributes_.form; }
  std::size_t pieces() const { return pieces_.size(); }
  MKey key() const { return attributes_.key; }
  bool is_free() const { return attributes_.free; }
  /// Whether PD, rights and range are all that an access is asked for.
  bool is_plain() const { return plain_; }
  /// Whether an access costs by the number of pieces or pages that it has to look at.
  bool is_charged() const { return pages_differ_ || !pieces_.empty(); }

  /// Before it is in a table.
  void set_key(MKey key) { attributes_.key = key; }
  void set_free(bool free) {
    attributes_.free = free;
    update_plain();
  }

 private:
  friend class KeyTable;
  friend class SignatureMover;
  static constexpr std::int64_t kDestroyWork = 200;
  static constexpr std::int64_t kExtentWork = 2;
  /// Pages of a reloadable key that are joined to one extent when an access meets the first.
  static constexpr std::size_t kRunMax = 64;

  /// The virtual address of offset 0.
  std::uint64_t base() const { return attributes_.start; }
  /// Bytes of all pieces, gone through once.
  std::uint64_t turn_length() const {
    if (!attributes_.equal_pieces) return indirect_ends_.empty() ? 0 : indirect_ends_.back();
    return std::uint64_t{pieces_.size()} << attributes_.log_page_size;
  }
  /// Which piece holds `offset` of a turn; pieces() or more: none.
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
  /// Where in the first page of a reloadable key its first byte lies.
  std::uint64_t first_page_offset() const {
    return attributes_.start & ((std::uint64_t{1} << attributes_.log_page_size) - 1);
  }
  /// Makes last_extent_ the one that holds `offset`. False if none does.
  bool seek(std::uint64_t offset) {
    // Payload is walked from start to end: nearly always the same extent as last time.
    return offset - last_extent_.offset < last_extent_.size || search_extent(offset);
  }
  bool search_extent(std::uint64_t offset);
  /// The host address of last_extent_ if all of it is one piece of local memory that may be read
  /// and written; null otherwise, or if nobody knows.
  std::byte* extent_host(const pcie::DmaSpace& dma) {
    return host_generation_ == dma.generation() ? host_ : find_extent_host(dma);
  }
  std::byte* find_extent_host(const pcie::DmaSpace& dma);
  /// Whether every page of [offset, offset + length) grants `access`. Adds to `looked_at` how many
  /// extents it took to see.
  bool pages_grant(std::uint64_t offset, std::uint64_t length, std::uint8_t access,
                   std::uint64_t& looked_at);

  bool search_page(std::uint64_t offset);

  Attributes attributes_;
  ExtentList extents_;
  PageTable table_;                           ///< instead, of a reloadable key
  std::vector<Sge> pieces_;                   ///< of an indirect key
  std::vector<std::uint64_t> indirect_ends_;  ///< offset of the end of each, unless all are equal
  Pattern pattern_;
  std::unique_ptr<BlockSignature> signature_;
  std::size_t last_hit_ = 0;
  Extent last_extent_{};       ///< number last_hit_; at first one of no bytes
  std::byte* host_ = nullptr;  ///< of last_extent_, see extent_host()
  std::uint64_t host_generation_ = 0;
  std::uint64_t skip_ = 0;  ///< bytes of pages to come that lie before the key
  bool reserved_pieces_ = false;
  bool pages_differ_ = false;  ///< not all pages grant all that the key does
  bool traced_ = false;        ///< each access is looked at closely, and noted
  bool plain_ = false;         ///< PD, rights and range are all that there is to check, as usual
};

/// The answer of KeyTable::check().
struct KeyCheck {
  MemoryKey* key;  ///< null: refused
  Reason reason;   ///< which check refused it

  explicit operator bool() const { return key != nullptr; }
};

/// All memory keys of one HCA; the device owns it, and whoever moves data uses it. A lookup is an
/// index into an array.
class KeyTable {
 public:
  /// `reserved_lkey` stands for the whole bus address space and is no entry of the table; only
  /// users with KeyUser::reserved_lkey may use it (IBTA 10.6.3.1). A piece of `null_key` is a
  /// page that is not there. `dump_fill_key` is everybody's for local accesses: it reads as zeros,
  /// and what is written to it is gone. They are no entries of the table either.
  KeyTable(pcie::DmaSpace& dma, KeyShape shape, std::optional<MKey> reserved_lkey = {},
           std::optional<MKey> null_key = {}, std::optional<MKey> dump_fill_key = {});

  const KeyShape& shape() const { return shape_; }
  /// Asked for keys that are not in the table, whenever one is checked. Null: nobody.
  void set_source(KeySource* source) { source_ = source; }
  /// Gets each access from now on. Before the first key.
  void set_trace(util::Trace* trace) { trace_ = trace; }
  /// What signatures begin with. Null: no key has one.
  void set_signature_values(const SignatureValues* values) { signature_values_ = values; }

  /// @pre no key with this index exists
  MemoryKey& insert(MemoryKey::Attributes attributes) {
    return insert(std::make_unique<MemoryKey>(std::move(attributes)));
  }
  MemoryKey& insert(std::unique_ptr<MemoryKey> key);
  /// By index, whatever the variant. False if there was none.
  bool erase_index(std::uint32_t index);
  /// By index and variant; null if there is none.
  MemoryKey* find(MKey key) {
    auto* found = find_index(shape_.index(key));
    return found != nullptr && found->key() == key ? found : nullptr;
  }
  /// By index alone; null if there is none.
  MemoryKey* find_index(std::uint32_t index) {
    return index < keys_.size() ? keys_[index].get() : nullptr;
  }

  /// Variant, state, PD, QP, rights and range of an access to [address, address + length).
  KeyCheck check(MKey key, const KeyUser& user, std::uint64_t address, std::uint64_t length,
                 std::uint8_t access) {
    // Nearly every key asks for its PD, its rights and its range alone; whatever this does not
    // allow gets its reason elsewhere.
    auto* found = find(key);
    if (found != nullptr && found->plain_) {
      const auto& a = found->attributes_;
      const auto offset = address - a.start;
      if (a.pd == user.pd && (a.access & access) == access && address >= a.start &&
          offset <= a.length && length <= a.length - offset) {
        return {found, Reason::kNone};
      }
    }
    return check_closely(key, user, address, length, access);
  }

  /// The host address of [address, address + length) if all of it is one piece of local memory, as
  /// most payload of a packet is; null otherwise. @pre check() has passed for this range
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
  /// What one_piece() has found, and all of the key that is in one piece with it. Of no bytes if
  /// nobody knows, or if PD, rights and range are not all that an access is asked for.
  struct Window {
    std::uint64_t start = 0;  ///< its first address
    std::uint64_t size = 0;   ///< bytes
    std::byte* host = nullptr;
  };
  Window window(MemoryKey& key);
  /// Calls `visit(MemoryPiece)` for the pieces of [address, address + length) in order. False
  /// if a part cannot be reached (only indirect keys can still fail after check()).
  /// @pre check() has passed for this range
  template <class Visit>
  bool for_each_piece(MemoryKey& key, std::uint64_t address, std::uint64_t length,
                      pcie::DmaAccess access, Visit&& visit) {
    fault_ = Reason::kMemoryUnreachable;
    return walk(key, address - key.base(), length, access, visit, 0);
  }
  /// Why read(), write() or for_each_piece() has just failed.
  Reason fault() const { return fault_; }

  /// Copies out of, or into, memory behind a key. False as for_each_piece, or if the DMA failed.
  /// Reason::kSignatureMismatch is none: all is copied, and signature_errors() has one more.
  bool read(MemoryKey& key, std::uint64_t address, std::span<std::byte> out);
  bool write(MemoryKey& key, std::uint64_t address, std::span<const std::byte> in);

  /// Errors that nobody was told of yet.
  std::span<const SignatureError> signature_errors() const { return signature_errors_; }
  void forget_signature_errors() { signature_errors_.clear(); }
  /// Room for them, before the first key that has a signature.
  void expect_signature_errors() { signature_errors_.reserve(kSignatureErrors); }

  pcie::DmaSpace& dma() { return dma_; }

  /// Work (util::WorkBudget) beyond what a packet or a request pays for, since this was last asked:
  /// pieces of indirect keys, of which a guest chooses how many a packet has, memory that is
  /// reached by messages, and what the keys' users add.
  std::int64_t take_work() { return std::exchange(work_, 0); }
  void add_work(std::int64_t units) { work_ += units; }
  /// Changes whenever a key goes or is changed: until then one that was found is still there and
  /// as it was, but may be free.
  std::uint64_t generation() const { return generation_; }
  /// Whether there was any. Most packets meet direct keys alone.
  bool has_work() const { return work_ != 0; }
  /// So much that others should have their turn before the next packet.
  bool strained() const { return work_ >= kStrain; }
  /// Whether there is a key whose accesses may add work, packet by packet.
  bool has_charged() const { return charged_ != 0; }
  /// Whether this one's may. @pre has_charged()
  bool is_charged(MKey key) {
    const auto* found = find(key);
    return found != nullptr && found->is_charged();
  }

  /// Lets `make` change a key of the table. Who found it before has to look for it again.
  template <class Make>
  void change(MemoryKey& key, Make&& make) {
    charged_ -= key.is_charged();
    make();
    charged_ += key.is_charged();
    ++generation_;
  }
  /// The key with this index leaves the table. @pre there is one
  std::unique_ptr<MemoryKey> take(std::uint32_t index) {
    charged_ -= keys_[index]->is_charged();
    ++generation_;
    return std::move(keys_[index]);
  }
  /// Destroys keys, until `work` is spent, when all of the table goes. True: none is left.
  bool dismantle(util::WorkBudget& work);

 private:
  friend class SignatureMover;
  /// One for each key of a scatter list.
  static constexpr std::size_t kSignatureErrors = 64;
  [[gnu::noinline]] KeyCheck check_closely(MKey key, const KeyUser& user, std::uint64_t address,
                                           std::uint64_t length, std::uint8_t access);
  KeyCheck judge(MKey key, const KeyUser& user, std::uint64_t address, std::uint64_t length,
                 std::uint8_t access);
  void note(const KeyCheck& check, MKey key, std::uint64_t address, std::uint64_t length,
            std::uint8_t access);
  static constexpr unsigned kIndirectDepthMax = 3;
  static constexpr std::int64_t kStrain = 50'000;
  static constexpr std::int64_t kPieceWork = 70;

  // The same as read() and write(), of the bytes of its pieces.
  bool read_pieces(MemoryKey& key, std::uint64_t offset, std::span<std::byte> out);
  bool write_pieces(MemoryKey& key, std::uint64_t offset, std::span<const std::byte> in);
  static bool signed_range(const MemoryKey& key, std::uint64_t address, std::uint64_t length);
  /// False: there is no room for it.
  bool note_signature_error(const SignatureError& error);

  template <class Visit>
  bool walk(MemoryKey& key, std::uint64_t offset, std::uint64_t length, pcie::DmaAccess access,
            Visit& visit, unsigned depth);
  template <class Visit>
  bool walk_indirect(MemoryKey& key, std::uint64_t offset, std::uint64_t length,
                     pcie::DmaAccess access, Visit& visit, unsigned depth);
  /// Of a key that reads as zeros.
  template <class Visit>
  static bool walk_nothing(std::uint64_t length, pcie::DmaAccess access, Visit& visit);
  /// Calls `visit` for [iova, iova + length), in more than one piece if mappings divide it.
  template <class Visit>
  bool walk_bus(pcie::Iova iova, std::uint64_t length, pcie::DmaAccess access, Visit& visit);

  pcie::DmaSpace& dma_;
  KeyShape shape_;
  std::vector<std::unique_ptr<MemoryKey>> keys_;  ///< by index
  std::unique_ptr<MemoryKey> reserved_;
  std::optional<MKey> null_key_;
  std::unique_ptr<MemoryKey> dump_fill_;
  Reason fault_ = Reason::kNone;
  std::int64_t work_ = 0;
  std::uint64_t generation_ = 1;
  std::size_t charged_ = 0;  ///< keys that are
  util::Trace* trace_ = nullptr;
  KeySource* source_ = nullptr;
  const SignatureValues* signature_values_ = nullptr;
  std::vector<SignatureError> signature_errors_;
};

}  // namespace softhca::rdma

#include "rdma/memory_key_inl.h"
