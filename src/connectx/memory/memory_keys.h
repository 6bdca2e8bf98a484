// Memory keys (PRM 6, 12.5): converts MKey contexts and translation lists to the keys of rdma/.
//
// One table holds the keys of both RDMA and Ethernet. A second table holds their numbers and the
// data for QUERY_MKEY.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/base/resources.h"
#include "connectx/command/command.h"
#include "connectx/memory/key_list.h"
#include "connectx/memory/long_update.h"
#include "connectx/memory/signature_values.h"
#include "connectx/memory/umr.h"
#include "connectx/queue/user_memory.h"
#include "hca/object_table.h"
#include "hca/use.h"
#include "pcie/dma_space.h"
#include "rdma/memory_key.h"
#include "rdma/work_queues.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/mkey_number.h"
#include "util/budget.h"

namespace softhca::connectx {

class MemoryKeys {
 public:
  static constexpr unsigned kVariantBits = spec::connectx::kMkeyVariantBits;
  static constexpr rdma::KeyShape kShape{kVariantBits, 32 - kVariantBits};
  /// The key that ends a scatter list early. Drivers use this value unless they query another one.
  static constexpr std::uint32_t kTerminator = 0x100;
  /// The reserved LKey: the bus address space, for QPs with `rlky` (PRM 12.5.4).
  static constexpr std::uint32_t kReservedLkey = 0x200;
  /// The null key. In a list of keys, it marks an absent page (mlx5 driver interface: ODP).
  static constexpr std::uint32_t kNullKey = 0x300;
  /// The key of local memory that reads as zeros and discards writes (mlx5 driver interface 7.7).
  static constexpr std::uint32_t kDumpFillKey = 0x400;
  /// Lower indexes are reserved for the special keys above.
  static constexpr std::uint32_t kFirstIndex = 0x10;

  MemoryKeys(pcie::DmaSpace& dma, Resources& resources, UserMemories& user_memories,
             const Limits& limits);

  rdma::KeyTable& table() { return table_; }
  PsvTable& psvs() { return psvs_; }
  const PsvTable& psvs() const { return psvs_; }

  /// CREATE_MKEY. Returns the new index. Reading a long list of translations takes several turns.
  tl::expected<MKeyIndex, Refusal> create(const Command& command);
  CommandResult query(MKeyIndex index, const Command& command);
  /// DESTROY_MKEY. May take several turns.
  CommandResult destroy(MKeyIndex index, const Command& command);
  /// Executes a UMR that was posted to the QP of `user`.
  rdma::LocalOutcome update(rdma::MKey umr_mkey, const Umr& umr, const UmrUser& user);
  std::size_t count() const { return records_.count(); }
  /// Destroys keys until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);
  /// One more than the highest index.
  std::uint32_t end() const { return records_.end(); }
  /// Finds a key. Null if there is none, or if it is being created or destroyed.
  const rdma::MemoryKey* find(MKeyIndex index) {
    return records_.find(index) == nullptr ? nullptr : table_.find_index(index.value());
  }

 private:
  using Context = util::View<spec::connectx::mkey_context>;
  using AccessMode = spec::connectx::mkey_access_mode;
  using Attributes = rdma::MemoryKey::Attributes;

  /// The state of a key that rdma::MemoryKey does not hold.
  struct Record {
    explicit Record(MKeyIndex the_index) : index(the_index) {}
    MKeyIndex index;
    std::array<std::byte, spec::connectx::mkey_context::kSize> context{};
    std::array<std::byte, 32> first_translations{};
    bool page_access = false;
    bool takes_umr = false;
    KeyList list{};  ///< of a KLM key
    /// BSF of a signature key, from the last UMR that set it.
    std::array<std::byte, spec::connectx::block_signature_format::kSize> bsf{};
    std::unique_ptr<LongUpdate> long_update{};
    util::Budget::Reservation translations{};
    std::uint64_t reserved = 0;  ///< number of translations reserved
    hca::Use pd_use{};
    hca::Use umem_use{};
  };

  /// The key that an unfinished command creates or destroys.
  struct Partial {
    std::unique_ptr<rdma::MemoryKey> key;
    util::Budget::Reservation translations;
    std::uint64_t entries = 0;   ///< entries of the list
    std::uint64_t read = 0;      ///< entries read so far
    std::uint64_t covered = 0;   ///< bytes covered by the pieces of an indirect key
    KeyList list{};              ///< as in Record
    UserMemory* umem = nullptr;  ///< the key's UMEM; null: the command has a list
    /// Offset of the key's first page from the start of the UMEM's first page.
    std::uint64_t umem_position = 0;
  };

  CommandResult check(Context context) const;
  CommandResult check_signable(Context context) const;
  CommandResult check_room(spec::connectx::mkey_access_mode mode, Context context) const;
  hca::Use use_pd(Context context);
  CommandResult begin(const Command& command);
  CommandResult check_pages(const Command& command, std::uint64_t octwords);
  CommandResult check_umem(const Command& command, Attributes& attributes);
  void read_umem(const Command& command);
  CommandResult check_pieces(const Command& command, std::uint64_t octwords);
  void read_pages(const Command& command, bool page_access);
  void read_pieces(const Command& command, bool fixed_size);
  MKeyIndex finish(const Command& command);

  // umr.cc
  static bool takes_turns(const Umr& umr, const Record& record, AccessMode mode);
  rdma::LocalOutcome load(const Umr& umr, const UmrUser& user, Record& record, rdma::MemoryKey& key,
                          AccessMode mode);
  template <class Take>
  rdma::LocalOutcome copy_list(const Umr& umr, const UmrUser& user, Take&& take);
  void write_pages(Record& record, rdma::MemoryKey& key, std::size_t octword,
                   std::span<const std::byte> entries);
  static void write_equal_pieces(Record& record, rdma::MemoryKey& key, std::size_t octword,
                                 std::span<const std::byte> entries);
  bool add_pieces(rdma::MemoryKey& key, const Umr& umr);
  static void show(Record& record, std::size_t octword, std::span<const std::byte> entries);
  static rdma::LocalOutcome take_keys(Record& record, rdma::MemoryKey& key, KeyList list,
                                      KeyList::Meaning meaning);
  WqeFault check_signature(const Umr& umr, Context context, rdma::MemoryKey& key,
                           rdma::SignatureRules& rules) const;
  static void sign(const Umr& umr, Context context, const rdma::SignatureRules& rules,
                   Record& record, rdma::BlockSignature& signature);
  bool reserve(Record& record, const Umr& umr, AccessMode mode);

  // long_update.cc
  static bool may_go_on(Record& record, const UmrUser& user);
  rdma::LocalOutcome begin_long(const Umr& umr, const UmrUser& user, Record& record,
                                AccessMode mode);
  rdma::LocalOutcome read_some(const Umr& umr, const UmrUser& user, LongUpdate& update);
  rdma::LocalOutcome load_some(const Umr& umr, const UmrUser& user, Record& record,
                               rdma::MemoryKey& key, AccessMode mode);

  Resources& resources_;
  UserMemories& user_memories_;
  const Limits& limits_;
  PsvTable psvs_;
  rdma::KeyTable table_;
  hca::ObjectTable<Record, MKeyIndex> records_;
  Partial partial_;
};

}  // namespace softhca::connectx
