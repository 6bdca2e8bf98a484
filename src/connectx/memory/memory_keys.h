// Memory keys (PRM 6, 12.5): converts MKey contexts and translation lists to the keys of rdma/.
//
// One table holds the keys of both RDMA and Ethernet. A second table holds their numbers and the
// data for QUERY_MKEY.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/base/resources.h"
#include "connectx/command/command.h"
#include "connectx/memory/key_list.h"
#include "connectx/memory/key_record.h"
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

  /// The key that an unfinished command creates or destroys.
  struct Partial {
    std::unique_ptr<rdma::MemoryKey> key;
    util::Budget::Reservation translations;
    std::uint64_t entries = 0;   ///< entries of the list
    std::uint64_t read = 0;      ///< entries read so far
    std::uint64_t covered = 0;   ///< bytes covered by the pieces of an indirect key
    KeyList list{};              ///< as in KeyRecord
    UserMemory* umem = nullptr;  ///< the key's UMEM; null: the command has a list
    /// Offset of the key's first page from the start of the UMEM's first page.
    std::uint64_t umem_position = 0;
  };

  CommandResult check(Context context) const;
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
  rdma::LocalOutcome load(const Umr& umr, const UmrUser& user, KeyRecord& record,
                          rdma::MemoryKey& key, AccessMode mode);
  rdma::LocalOutcome load_some(const Umr& umr, const UmrUser& user, KeyRecord& record,
                               rdma::MemoryKey& key, AccessMode mode);
  template <class Take>
  rdma::LocalOutcome copy_list(const Umr& umr, const UmrUser& user, Take&& take);

  Resources& resources_;
  UserMemories& user_memories_;
  const Limits& limits_;
  PsvTable psvs_;
  rdma::KeyTable table_;
  hca::ObjectTable<KeyRecord, MKeyIndex> records_;
  Partial partial_;
};

}  // namespace softhca::connectx
