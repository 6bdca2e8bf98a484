#include "connectx/memory/memory_keys.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "connectx/memory/key_signatures.h"
#include "connectx/memory/mkey_attributes.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using MkeyLayout = spec::connectx::mkey_context;
using CreateMkey = spec::connectx::create_mkey_in;
using Klm = spec::connectx::klm_entry;
using KsmEntry = spec::connectx::ksm_entry;
using Mtt = spec::connectx::mtt_entry;
using AccessMode = spec::connectx::mkey_access_mode;
using Attributes = rdma::MemoryKey::Attributes;

constexpr std::string_view kCreateMkeySection = "PRM 12.5.1";
constexpr std::string_view kMkeyUmem = "mlx5 driver interface: UMEM";
/// Entries of a list that are read between two checks of the work budget.
constexpr std::uint64_t kReadAtOnce = 1024;

AccessMode mode_of(const Command& command) {
  return access_mode(command.input<CreateMkey>().get(CreateMkey::mkey_context));
}

/// Bytes of the list that the input has, at most `octwords`.
std::uint64_t list_size(const Command& command, std::uint64_t octwords) {
  const auto size = command.all.size();
  const auto there =
      size > CreateMkey::klm_pas_mtt_offset ? size - CreateMkey::klm_pas_mtt_offset : 0;
  return std::min<std::uint64_t>(there, octwords * kOctword);
}

/// True if UMRs may change the key. They may not if the key is in a UMEM: it has no list.
bool takes_umr(const Command& command) {
  const auto in = command.input<CreateMkey>();
  return in.get(CreateMkey::mkey_context).get(MkeyLayout::umr_en) != 0 &&
         in.get(CreateMkey::mkey_umem_valid) == 0;
}

}  // namespace

MemoryKeys::MemoryKeys(pcie::DmaSpace& dma, Resources& resources, UserMemories& user_memories,
                       const Limits& limits)
    : resources_(resources),
      user_memories_(user_memories),
      limits_(limits),
      psvs_(resources),
      table_(dma, kShape, rdma::MKey(kReservedLkey), rdma::MKey(kNullKey),
             rdma::MKey(kDumpFillKey)),
      records_(kFirstIndex, Limits::count(limits.log_max_mkey)) {
  table_.set_signature_values(&psvs_);
}

CommandResult MemoryKeys::check(Context context) const {
  if (auto result = check_signable(context, resources_); !result) return result;
  // If the key is free, the UMR that takes it into use sets its PD.
  const bool free = context.get(MkeyLayout::free) != 0;
  if (!free && !resources_.pds().contains(Pd(context.get(MkeyLayout::pd)))) {
    return refuse(Status::BAD_RESOURCE, kCreateMkeySection, "unknown PD");
  }
  const auto start = context.get(MkeyLayout::start_addr);
  const auto length = context.get(MkeyLayout::len);
  if (context.get(MkeyLayout::length64) == 0 && length != 0 && start + (length - 1) < start) {
    return refuse(Status::BAD_PARAM, kCreateMkeySection,
                  "start_addr and len pass the end of the address space");
  }
  return {};
}

hca::Use MemoryKeys::use_pd(Context context) {
  if (context.get(MkeyLayout::free) != 0) return {};
  return resources_.pds().use(Pd(context.get(MkeyLayout::pd)));
}

tl::expected<MKeyIndex, Refusal> MemoryKeys::create(const Command& command) {
  if (partial_.key == nullptr) {
    if (auto begun = begin(command); !begun) {
      partial_ = {};
      return tl::unexpected(begun.error());
    }
  }
  const auto mode = mode_of(command);
  while (partial_.read != partial_.entries) {
    if (command.work.spent()) {
      command.unfinished = true;
      return MKeyIndex();
    }
    if (partial_.umem != nullptr) {
      read_umem(command);
    } else if (is_indirect(mode)) {
      read_pieces(command, mode == AccessMode::KSM);
    } else {
      read_pages(command, command.input<CreateMkey>().get(CreateMkey::pg_access) != 0);
    }
  }
  if (is_indirect(mode) && !partial_.key->is_free() &&
      partial_.covered < partial_.key->attributes().length) {
    partial_ = {};
    return refuse(Status::BAD_PARAM, kCreateMkeySection,
                  "the keys of the list cover less than len");
  }
  return finish(command);
}

/// Limits the lists that UMRs may load, in the same way as the list of the command itself.
CommandResult MemoryKeys::check_room(AccessMode mode, Context context) const {
  const std::uint64_t size = context.get(MkeyLayout::translations_octword_size);
  if (is_indirect(mode) && size > Limits::count(limits_.log_max_klm_list_size)) {
    return refuse(Status::EXCEED_LIM, kCreateMkeySection,
                  "room for keys above log_max_klm_list_size");
  }
  if (size > Resources::kMaxTranslations) {
    return refuse(Status::NO_RESOURCES, kCreateMkeySection,
                  "room for more translations than there are");
  }
  return {};
}

/// Makes all checks that need no list entries, and creates the key without its list.
CommandResult MemoryKeys::begin(const Command& command) {
  const auto in = command.input<CreateMkey>();
  const auto context = in.get(CreateMkey::mkey_context);
  if (auto result = check(context); !result) return result;
  const bool page_access = in.get(CreateMkey::pg_access) != 0;
  const auto mode = access_mode(context);
  if (page_access && mode != AccessMode::MTT) {
    return refuse(Status::BAD_PARAM, kCreateMkeySection,
                  "pg_access with an access_mode other than MTT");
  }
  const std::uint64_t octwords = in.get(CreateMkey::translations_octword_actual_size);
  if (mode != AccessMode::MTT && octwords > Limits::count(limits_.log_max_klm_list_size)) {
    return refuse(Status::EXCEED_LIM, kCreateMkeySection,
                  "a list of keys above log_max_klm_list_size");
  }
  if (octwords > context.get(MkeyLayout::translations_octword_size)) {
    return refuse(Status::BAD_PARAM, kCreateMkeySection,
                  "more translations than translations_octword_size");
  }
  if (takes_umr(command)) {
    if (auto result = check_room(mode, context); !result) return result;
  }
  auto attributes = attributes_of(context);
  attributes.reloadable = mode == AccessMode::MTT && takes_umr(command);
  const bool free = attributes.free;
  partial_ = {};
  const bool in_umem = in.get(CreateMkey::mkey_umem_valid) != 0;
  if (in_umem) {
    if (mode != AccessMode::MTT || free) {
      return refuse(Status::BAD_PARAM, kMkeyUmem,
                    "a key in a UMEM is in use and has access_mode MTT");
    }
    if (auto result = check_umem(command, attributes); !result) return result;
  }
  partial_.key = std::make_unique<rdma::MemoryKey>(std::move(attributes));
  CommandResult result;
  if (free || in_umem) {
    // If the key is free, it has no translations until a UMR takes it into use. If it is in a UMEM,
    // it was checked above.
  } else if (mode == AccessMode::PA) {
    // Bus address = virtual address.
  } else if (mode == AccessMode::MTT) {
    result = check_pages(command, octwords);
  } else if (is_indirect(mode)) {
    result = check_pieces(command, octwords);
  } else {
    result =
        refuse(Status::BAD_PARAM, kCreateMkeySection, "access_mode is not PA, MTT, KLM or KSM");
  }
  if (!result) return result;
  auto reservation = resources_.translations().reserve(partial_.entries);
  if (!reservation)
    return refuse(Status::NO_RESOURCES, kCreateMkeySection, "all translations are in use");
  partial_.translations = *std::move(reservation);
  if (records_.full())
    return refuse(Status::NO_RESOURCES, kCreateMkeySection, "all MKeys are in use");
  return {};
}

CommandResult MemoryKeys::check_pages(const Command& command, std::uint64_t octwords) {
  const auto& attributes = partial_.key->attributes();
  const auto log_page_size = attributes.log_page_size;
  if (log_page_size < limits_.log_pg_sz || log_page_size > kLogMaxPage) {
    return refuse(Status::BAD_PARAM, kCreateMkeySection,
                  "log_page_size is not between log_pg_sz and 48");
  }
  if (attributes.whole_space) {
    return refuse(Status::BAD_PARAM, kCreateMkeySection, "length64 with a page list");
  }
  const std::uint64_t page_size = 1ull << log_page_size;
  const auto in_page = attributes.start & (page_size - 1);
  // Computed in steps that cannot overflow, because the driver chooses len.
  const auto pages =
      (attributes.length >> log_page_size) +
      ((in_page + (attributes.length & (page_size - 1)) + page_size - 1) >> log_page_size);
  // If the number of pages is odd, half of the last octword may be missing.
  if (pages > list_size(command, octwords) / Mtt::kSize) {
    return refuse(Status::BAD_PARAM, kCreateMkeySection,
                  "fewer pages than start_addr and len cover");
  }
  partial_.entries = pages;
  return {};
}

/// Places the key in the UMEM at mkey_umem_offset, with the largest pages that both allow.
CommandResult MemoryKeys::check_umem(const Command& command, Attributes& attributes) {
  const auto in = command.input<CreateMkey>();
  auto* umem = user_memories_.find(UmemId(in.get(CreateMkey::mkey_umem_id)));
  if (umem == nullptr) return refuse(Status::BAD_RESOURCE, kMkeyUmem, "unknown UMEM of a key");
  const auto offset = in.get(CreateMkey::mkey_umem_offset);
  if (attributes.whole_space || !umem->contains(offset, attributes.length)) {
    return refuse(Status::BAD_PARAM, kMkeyUmem, "the key passes the end of its UMEM");
  }
  const auto position = umem->page_offset() + offset;
  const auto skew = static_cast<unsigned>(std::countr_zero(attributes.start - position));
  attributes.log_page_size = std::min(umem->log_page_size(), skew);
  if (attributes.log_page_size < limits_.log_pg_sz) {
    return refuse(Status::BAD_PARAM, kMkeyUmem,
                  "start_addr has not the place in its page that the UMEM's byte has");
  }
  const auto page_size = std::uint64_t{1} << attributes.log_page_size;
  const auto in_page = position & (page_size - 1);
  partial_.umem = umem;
  partial_.umem_position = position - in_page;
  partial_.entries = (in_page + attributes.length + page_size - 1) >> attributes.log_page_size;
  return {};
}

CommandResult MemoryKeys::check_pieces(const Command& command, std::uint64_t octwords) {
  const auto& attributes = partial_.key->attributes();
  if (mode_of(command) == AccessMode::KSM && attributes.log_page_size > kLogMaxPiece) {
    return refuse(Status::BAD_PARAM, kCreateMkeySection,
                  "KSM pieces above 2 GiB are not implemented");
  }
  if (attributes.whole_space) {
    return refuse(Status::BAD_PARAM, kCreateMkeySection, "length64 with a list of keys");
  }
  partial_.entries = list_size(command, octwords) / kOctword;
  return {};
}

/// Reads the next pages of the list, up to the end of a contiguous piece of the input.
void MemoryKeys::read_pages(const Command& command, bool page_access) {
  const auto list = command.all.at(CreateMkey::klm_pas_mtt_offset + partial_.read * Mtt::kSize);
  const auto count = std::min<std::uint64_t>(
      {list.size() / Mtt::kSize, kReadAtOnce, partial_.entries - partial_.read});
  const bool reloadable = takes_umr(command);
  for (std::uint64_t i = 0; i != count; ++i) {
    auto page = page_of(util::View<Mtt>(list.subspan(i * Mtt::kSize, Mtt::kSize)));
    if (!page_access) page.access = rdma::kEveryAccess;
    if (reloadable) {
      partial_.key->load_page(partial_.read + i, page);
    } else {
      partial_.key->append_page(page.address, page.access);
    }
  }
  partial_.read += count;
  command.work.charge(static_cast<std::int64_t>(count) * kEntryWork);
}

/// Reads the next pages of the UMEM.
void MemoryKeys::read_umem(const Command& command) {
  const auto& umem = *partial_.umem;
  const auto log_page_size = partial_.key->attributes().log_page_size;
  const auto count = std::min(kReadAtOnce, partial_.entries - partial_.read);
  for (std::uint64_t i = partial_.read; i != partial_.read + count; ++i) {
    const auto position = partial_.umem_position + (i << log_page_size);
    const auto in_page = position & ((std::uint64_t{1} << umem.log_page_size()) - 1);
    std::array<std::byte, Mtt::kSize> entry;
    util::store_be64(entry.data(), umem.entry(position >> umem.log_page_size()));
    const auto page = page_of(util::View<Mtt>(entry));
    partial_.key->append_page(page.address + in_page, page.access);
  }
  partial_.read += count;
  command.work.charge(static_cast<std::int64_t>(count) * kEntryWork);
}

void MemoryKeys::read_pieces(const Command& command, bool fixed_size) {
  const auto& attributes = partial_.key->attributes();
  const auto list = command.all.at(CreateMkey::klm_pas_mtt_offset + partial_.read * kOctword);
  const auto count = std::min<std::uint64_t>(
      {list.size() / kOctword, kReadAtOnce, partial_.entries - partial_.read});
  if (!fixed_size) partial_.list.write(partial_.read, list.first(count * kOctword));
  for (std::uint64_t i = 0; i != count && partial_.covered < attributes.length; ++i) {
    const auto entry = list.subspan(i * kOctword, kOctword);
    const util::View<Klm> klm(entry);
    const util::View<KsmEntry> ksm(entry);
    if (fixed_size) {
      partial_.key->set_piece(partial_.read + i, ksm.get(KsmEntry::address),
                              rdma::MKey(ksm.get(KsmEntry::mkey)));
      partial_.covered += std::uint64_t{1} << attributes.log_page_size;
      continue;
    }
    const auto size = klm.get(Klm::byte_count);
    if (size == 0) continue;
    partial_.key->append_piece({.address = ksm.get(KsmEntry::address),
                                .length = size,
                                .lkey = rdma::MKey(ksm.get(KsmEntry::mkey))});
    partial_.covered += size;
  }
  partial_.read += count;
  command.work.charge(static_cast<std::int64_t>(count) * kEntryWork);
}

MKeyIndex MemoryKeys::finish(const Command& command) {
  const auto in = command.input<CreateMkey>();
  const auto context = in.get(CreateMkey::mkey_context);
  auto* record = records_.emplace();
  assert(record != nullptr && "there was a place when the command began");
  partial_.key->set_key(kShape.key(record->index.value(), context.get(MkeyLayout::mkey)));
  if (context.get(MkeyLayout::bsf_en) != 0) {
    partial_.key->make_signable();
    table().signature_errors().reserve();
  }
  partial_.key->refresh();
  table().insert(std::move(partial_.key));
  std::ranges::copy(context.bytes(), record->context.begin());
  const auto list = command.in_tail(CreateMkey::klm_pas_mtt_offset);
  const std::uint64_t octwords = in.get(CreateMkey::translations_octword_actual_size);
  std::copy_n(list.begin(),
              std::min<std::uint64_t>(
                  {list.size(), octwords * kOctword, record->first_translations.size()}),
              record->first_translations.begin());
  record->page_access = in.get(CreateMkey::pg_access) != 0;
  record->takes_umr = takes_umr(command);
  record->list = std::move(partial_.list);
  record->translations = std::move(partial_.translations);
  record->reserved = partial_.entries;
  record->pd_use = use_pd(context);
  if (partial_.umem != nullptr) record->umem_use = partial_.umem->use();
  return record->index;
}

CommandResult MemoryKeys::query(MKeyIndex index, const Command& command) {
  constexpr std::string_view kQuery = "PRM 12.5.2";
  using In = spec::connectx::query_mkey_in;
  using Out = spec::connectx::query_mkey_out;
  const auto* record = records_.find(index);
  if (record == nullptr) return refuse(Status::BAD_RESOURCE, kQuery, "unknown MKey");
  if (command.input<In>().get(In::pg_access) != 0 && !record->page_access) {
    return refuse(Status::BAD_PARAM, kQuery, "pg_access on a key that was made without it");
  }
  const auto out = command.output<Out>();
  const auto context = out.sub(Out::mkey_context);
  std::ranges::copy(record->context, context.bytes().begin());
  if (const auto* key = table_.find_index(index.value())) {
    context.set(MkeyLayout::free, key->is_free());
    context.set(MkeyLayout::mkey, kShape.variant(key->key()));
  }
  constexpr std::uint16_t kBsfs = 2;
  if (command.op_mod == kBsfs) {
    const std::span<const std::byte> bsf = record->bsf;
    std::ranges::copy(bsf.first(kOctword), out.sub(Out::bsf0_klm0_pas_mtt0_1).begin());
    std::ranges::copy(bsf.subspan(kOctword, kOctword), out.sub(Out::bsf1_klm1_pas_mtt2_3).begin());
    return {};
  }
  const std::span<const std::byte> translations = record->first_translations;
  std::ranges::copy(translations.first(kOctword), out.sub(Out::bsf0_klm0_pas_mtt0_1).begin());
  std::ranges::copy(translations.last(kOctword), out.sub(Out::bsf1_klm1_pas_mtt2_3).begin());
  // Drivers provide room for the whole list of keys, to find the pages behind a memory window.
  const auto room = command.out.subspan(Out::kSize);
  const auto list = record->list.bytes();
  const auto rest = list.subspan(std::min(list.size(), translations.size()));
  std::ranges::copy(rest.first(std::min(rest.size(), room.size())), room.begin());
  return {};
}

bool MemoryKeys::dismantle(util::WorkBudget& work) {
  constexpr std::int64_t kRecordWork = 150;
  if (partial_.key != nullptr && !partial_.key->shrink(work)) return false;
  partial_ = {};
  return table_.dismantle(work) && psvs_.dismantle(work) &&
         records_.dismantle(work, [](const KeyRecord&) { return kRecordWork; });
}

CommandResult MemoryKeys::destroy(MKeyIndex index, const Command& command) {
  if (records_.find(index) == nullptr) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.5.3", "unknown MKey");
  }
  // Once the key is out of the table, all accesses through it fail.
  if (partial_.key == nullptr) partial_.key = table().take(index.value());
  if (!partial_.key->shrink(command.work)) {
    command.unfinished = true;
    return {};
  }
  command.work.charge(partial_.key->destroy_work());
  partial_ = {};
  records_.erase(index);
  return {};
}

}  // namespace softhca::connectx
