// Memory keys (PRM 6, 12.5): from MKey contexts and translation lists to the keys of rdma/.
//
// One table holds the keys themselves, for both sides of the device. Beside it are their numbers,
// and what QUERY_MKEY must tell.
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
#include "util/budget.h"

namespace softhca::connectx {

class MemoryKeys {
 public:
  /// PRM 6.1: an MKey is the index of its context, and below it 8 bits of the driver's choice.
  static constexpr unsigned kVariantBits = 8;
  static constexpr rdma::KeyShape kShape{kVariantBits, 32 - kVariantBits};
  /// The key that ends a scatter list early (drivers that do not ask for another use it).
  static constexpr std::uint32_t kTerminator = 0x100;
  /// The reserved LKey: the bus address space, for QPs with `rlky` (PRM 12.5.4).
  static constexpr std::uint32_t kReservedLkey = 0x200;
  /// In lists of keys: a page that is not there (mlx5 driver interface: ODP).
  static constexpr std::uint32_t kNullKey = 0x300;
  /// Local memory that reads as zeros and keeps nothing (mlx5 driver interface: null MRs).
  static constexpr std::uint32_t kDumpFillKey = 0x400;
  /// Indexes below are left to the special keys above.
  static constexpr std::uint32_t kFirstIndex = 0x10;

  MemoryKeys(pcie::DmaSpace& dma, Resources& resources, UserMemories& user_memories,
             const Limits& limits);

  rdma::KeyTable& table() { return table_; }
  PsvTable& psvs() { return psvs_; }
  const PsvTable& psvs() const { return psvs_; }

  /// CREATE_MKEY. The new index. A long list of translations is read in several turns.
  tl::expected<MKeyIndex, Refusal> create(const Command& command);
  CommandResult query(MKeyIndex index, const Command& command);
  /// Also in several turns.
  CommandResult destroy(MKeyIndex index, const Command& command);
  /// A UMR that is posted to the QP of `user`.
  rdma::LocalOutcome update(rdma::MKey umr_mkey, const Umr& umr, const UmrUser& user);
  std::size_t count() const { return records_.count(); }
  /// Destroys keys, until `work` is spent, when all of them go. True: none is left.
  bool dismantle(util::WorkBudget& work);
  /// Above all their indexes.
  std::uint32_t end() const { return records_.end(); }
  /// Null if there is none, or it is on its way in or out.
  const rdma::MemoryKey* find(MKeyIndex index) {
    return records_.find(index) == nullptr ? nullptr : table_.find_index(index.value());
  }

 private:
  using Context = util::View<spec::connectx::mkey_context>;
  using AccessMode = spec::connectx::mkey_access_mode;
  using Attributes = rdma::MemoryKey::Attributes;

  /// What CREATE_MKEY made besides the key.
  struct Record {
    explicit Record(MKeyIndex the_index) : index(the_index) {}
    MKeyIndex index;
    std::array<std::byte, spec::connectx::mkey_context::kSize> context{};
    std::array<std::byte, 32> first_translations{};
    bool page_access = false;
    bool takes_umr = false;
    KeyList list{};  ///< of a KLM key
    /// Of a signature key, as it came last.
    std::array<std::byte, spec::connectx::block_signature_format::kSize> bsf{};
    std::unique_ptr<LongUpdate> long_update{};
    util::Budget::Reservation translations{};
    std::uint64_t reserved = 0;  ///< by it
    hca::Use pd_use{};
    hca::Use umem_use{};
  };

  /// The key that the present command makes or destroys.
  struct Partial {
    std::unique_ptr<rdma::MemoryKey> key;
    util::Budget::Reservation translations;
    std::uint64_t entries = 0;   ///< of the list that are to be read
    std::uint64_t read = 0;      ///< of these
    std::uint64_t covered = 0;   ///< bytes, by the pieces of an indirect key
    KeyList list{};              ///< as in Record
    UserMemory* umem = nullptr;  ///< that the key lies in; null: the command has a list
    /// Of the key's first page, from the start of the first page of the UMEM.
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
  static bool takes_turns(const Umr& umr, const Record& record);
  rdma::LocalOutcome load(const Umr& umr, const UmrUser& user, Record& record, rdma::MemoryKey& key,
                          AccessMode mode);
  template <class Take>
  rdma::LocalOutcome copy_list(const Umr& umr, const UmrUser& user, Take&& take);
  void write_pages(Record& record, rdma::MemoryKey& key, std::size_t octword,
                   std::span<const std::byte> entries);
  static void write_equal_pieces(Record& record, rdma::MemoryKey& key, std::size_t octword,
                                 std::span<const std::byte> entries);
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
