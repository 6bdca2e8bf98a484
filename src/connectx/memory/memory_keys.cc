#include "connectx/memory/memory_keys.h"

#include <algorithm>
#include <utility>

#include "util/endian.h"

namespace softhca::connectx {

namespace {

using Layout = spec::connectx::mkey_context;
using Create = spec::connectx::create_mkey_in;
using Klm = spec::connectx::klm_entry;
using Ksm = spec::connectx::ksm_entry;
using Mtt = spec::connectx::mtt_entry;
using AccessMode = spec::connectx::mkey_access_mode;
using Attributes = rdma::MemoryKey::Attributes;

constexpr std::string_view kCreate = "PRM 12.5.1";
constexpr std::size_t kOctword = 16;
constexpr std::uint32_t kAnyQpn = 0xFFFFFF;
constexpr unsigned kLogMaxPage = 48;
constexpr pcie::Iova kPageMask = 0xFFF;

AccessMode access_mode(util::View<Layout> context) {
  return static_cast<AccessMode>(context.get(Layout::access_mode_4_2)
                                     << Layout::access_mode.kWidth |
                                 context.get(Layout::access_mode));
}

std::uint8_t access_rights(util::View<Layout> context) {
  unsigned access = 0;
  if (context.get(Layout::lr) != 0) access |= rdma::kLocalRead;
  if (context.get(Layout::lw) != 0) access |= rdma::kLocalWrite;
  if (context.get(Layout::rr) != 0) access |= rdma::kRemoteRead;
  if (context.get(Layout::rw) != 0) access |= rdma::kRemoteWrite;
  if (context.get(Layout::a) != 0) access |= rdma::kRemoteAtomic;
  return static_cast<std::uint8_t>(access);
}

/// Everything but the number and the translations.
Attributes base_attributes(util::View<Layout> context) {
  Attributes attributes;
  attributes.pd = rdma::Pd(context.get(Layout::pd));
  attributes.access = access_rights(context);
  if (const auto qpn = context.get(Layout::qpn); qpn != kAnyQpn) {
    attributes.only_qpn = rdma::Qpn(qpn);
  }
  attributes.start = context.get(Layout::start_addr);
  attributes.length = context.get(Layout::len);
  attributes.whole_space = context.get(Layout::length64) != 0;
  attributes.free = context.get(Layout::free) != 0;
  attributes.invalidatable = context.get(Layout::en_rinval) != 0;
  return attributes;
}

/// The rights that a page grants (PRM Table 12), for keys made with pg_access.
std::uint8_t page_rights(util::View<Mtt> mtt) {
  const bool read = mtt.get(Mtt::rd_en) != 0;
  const bool write = mtt.get(Mtt::wr_en) != 0;
  unsigned rights = 0;
  if (read) rights |= rdma::kLocalRead | rdma::kRemoteRead;
  if (write) rights |= rdma::kLocalWrite | rdma::kRemoteWrite;
  if (read && write) rights |= rdma::kRemoteAtomic;
  return static_cast<std::uint8_t>(rights);
}

CommandResult read_mtts(const Limits& limits, util::View<Layout> context,
                        std::span<const std::byte> translations, bool page_access,
                        Attributes& attributes) {
  const auto log_page_size = context.get(Layout::log_page_size);
  if (log_page_size < limits.log_pg_sz || log_page_size > kLogMaxPage) {
    return refuse(Status::BAD_PARAM, kCreate, "log_page_size is not between log_pg_sz and 48");
  }
  if (attributes.whole_space) {
    return refuse(Status::BAD_PARAM, kCreate, "length64 with a page list");
  }
  const std::uint64_t page_size = 1ull << log_page_size;
  const auto in_page = attributes.start & (page_size - 1);
  // In steps that cannot overflow: len is the driver's.
  const auto pages =
      (attributes.length >> log_page_size) +
      ((in_page + (attributes.length & (page_size - 1)) + page_size - 1) >> log_page_size);
  if (pages > translations.size() / Mtt::kSize) {
    return refuse(Status::BAD_PARAM, kCreate, "fewer pages than start_addr and len cover");
  }
  attributes.log_page_size = log_page_size;
  attributes.pages.reserve(pages);
  for (std::uint64_t i = 0; i < pages; ++i) {
    const auto entry = translations.subspan(i * Mtt::kSize, Mtt::kSize);
    attributes.pages.push_back(util::load_be64(entry.data()) & ~kPageMask);
    if (page_access) attributes.page_access.push_back(page_rights(util::View<Mtt>(entry)));
  }
  return {};
}

CommandResult read_klms(util::View<Layout> context, std::span<const std::byte> translations,
                        bool fixed_size, Attributes& attributes) {
  static_assert(Klm::kSize == kOctword && Ksm::kSize == kOctword);
  const auto log_size = context.get(Layout::log_page_size);
  if (fixed_size && log_size > 31) {
    return refuse(Status::BAD_PARAM, kCreate, "KSM pieces above 2 GiB are not implemented");
  }
  if (attributes.whole_space) {
    return refuse(Status::BAD_PARAM, kCreate, "length64 with a list of keys");
  }
  std::uint64_t total = 0;
  for (std::size_t at = 0; at + kOctword <= translations.size() && total < attributes.length;
       at += kOctword) {
    const auto entry = translations.subspan(at, kOctword);
    const util::View<Klm> klm(entry);
    const util::View<Ksm> ksm(entry);
    const auto size = fixed_size ? 1u << log_size : klm.get(Klm::byte_count);
    if (size == 0) continue;
    attributes.indirect.push_back(
        {.address = ksm.get(Ksm::address), .length = size, .lkey = rdma::MKey(ksm.get(Ksm::mkey))});
    total += size;
  }
  if (total < attributes.length) {
    return refuse(Status::BAD_PARAM, kCreate, "the keys of the list cover less than len");
  }
  return {};
}

}  // namespace

MemoryKeys::MemoryKeys(pcie::DmaSpace& dma, Resources& resources, const Limits& limits)
    : resources_(resources),
      limits_(limits),
      table_(dma, kShape, rdma::MKey(kReservedLkey)),
      records_(kFirstIndex, Limits::count(limits.log_max_mkey)) {}

CommandResult MemoryKeys::check(Context context) const {
  if (context.get(Layout::bsf_en) != 0) {
    return refuse(Status::BAD_PARAM, kCreate, "bsf_en: signature keys are not implemented");
  }
  // A free key gets its PD by the UMR that takes it into use.
  const bool free = context.get(Layout::free) != 0;
  if (!free && !resources_.pds().contains(Pd(context.get(Layout::pd)))) {
    return refuse(Status::BAD_RESOURCE, kCreate, "unknown PD");
  }
  const auto start = context.get(Layout::start_addr);
  const auto length = context.get(Layout::len);
  if (context.get(Layout::length64) == 0 && length != 0 && start + (length - 1) < start) {
    return refuse(Status::BAD_PARAM, kCreate,
                  "start_addr and len pass the end of the address space");
  }
  return {};
}

hca::Use MemoryKeys::use_pd(Context context) {
  if (context.get(Layout::free) != 0) return {};
  return resources_.pds().use(Pd(context.get(Layout::pd)));
}

tl::expected<MKeyIndex, Refusal> MemoryKeys::create(const Command& command) {
  const auto in = command.input<Create>();
  const auto context = in.get(Create::mkey_context);
  if (auto result = check(context); !result) return tl::unexpected(result.error());
  const bool page_access = in.get(Create::pg_access) != 0;
  if (in.get(Create::mkey_umem_valid) != 0) {
    return refuse(Status::BAD_PARAM, kCreate, "UMEM objects are not implemented");
  }
  const auto mode = access_mode(context);
  if (page_access && mode != AccessMode::MTT) {
    return refuse(Status::BAD_PARAM, kCreate, "pg_access with an access_mode other than MTT");
  }
  const std::uint64_t octwords = in.get(Create::translations_octword_actual_size);
  if (mode != AccessMode::MTT && octwords > Limits::count(limits_.log_max_klm_list_size)) {
    return refuse(Status::EXCEED_LIM, kCreate, "a list of keys above log_max_klm_list_size");
  }
  if (octwords > context.get(Layout::translations_octword_size)) {
    return refuse(Status::BAD_PARAM, kCreate, "more translations than translations_octword_size");
  }
  const auto tail = command.in_tail(Create::klm_pas_mtt_offset);
  // The last octword of an odd number of pages may be half there.
  const auto translations = tail.first(std::min<std::uint64_t>(tail.size(), octwords * kOctword));

  auto attributes = base_attributes(context);
  CommandResult result;
  if (attributes.free) {
    // Nothing to translate until a UMR takes it into use.
  } else if (mode == AccessMode::PA) {
    // Bus address = virtual address.
  } else if (mode == AccessMode::MTT) {
    result = read_mtts(limits_, context, translations, page_access, attributes);
  } else if (mode == AccessMode::KLM || mode == AccessMode::KSM) {
    result = read_klms(context, translations, mode == AccessMode::KSM, attributes);
  } else {
    result = refuse(Status::BAD_PARAM, kCreate, "access_mode is not PA, MTT, KLM or KSM");
  }
  if (!result) return tl::unexpected(result.error());

  auto reservation =
      resources_.translations().reserve(attributes.pages.size() + attributes.indirect.size());
  if (!reservation) return refuse(Status::NO_RESOURCES, kCreate, "all translations are in use");
  auto* record = records_.emplace();
  if (record == nullptr) return refuse(Status::NO_RESOURCES, kCreate, "all MKeys are in use");
  attributes.key = kShape.key(record->index.value(), context.get(Layout::mkey));
  table().insert(std::move(attributes));
  std::ranges::copy(context.bytes(), record->context.begin());
  std::copy_n(translations.begin(),
              std::min(translations.size(), record->first_translations.size()),
              record->first_translations.begin());
  record->page_access = page_access;
  record->translations = *std::move(reservation);
  record->pd_use = use_pd(context);
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
    context.set(Layout::free, key->is_free());
    context.set(Layout::mkey, kShape.variant(key->key()));
  }
  const std::span<const std::byte> translations = record->first_translations;
  std::ranges::copy(translations.first(kOctword), out.sub(Out::bsf0_klm0_pas_mtt0_1).begin());
  std::ranges::copy(translations.last(kOctword), out.sub(Out::bsf1_klm1_pas_mtt2_3).begin());
  return {};
}

bool MemoryKeys::dismantle(util::WorkBudget& work) {
  constexpr std::int64_t kRecordWork = 150;
  return table_.dismantle(work) &&
         records_.dismantle(work, [](const Record&) { return kRecordWork; });
}

CommandResult MemoryKeys::destroy(MKeyIndex index) {
  if (records_.find(index) == nullptr) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.5.3", "unknown MKey");
  }
  table().erase_index(index.value());
  records_.erase(index);
  return {};
}

}  // namespace softhca::connectx
