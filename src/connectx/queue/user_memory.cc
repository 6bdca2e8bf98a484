#include "connectx/queue/user_memory.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using CreateUmemIn = spec::connectx::create_umem_in;
using Umem = spec::connectx::umem;
using Mtt = spec::connectx::mtt_entry;

constexpr std::string_view kUserMemorySection = "mlx5 driver interface: UMEM";
constexpr unsigned kLogUserPageSizeBase = 12;
constexpr unsigned kLogMaxUserPage = 48;
constexpr std::size_t kEntrySize = sizeof(std::uint64_t);
/// Entries of a list that are processed between two checks of the work budget, and costs
/// (util::WorkBudget).
constexpr std::uint64_t kEntriesAtOnce = 1024;
constexpr std::int64_t kUserEntryWork = 3;
constexpr std::int64_t kUserDestroyWork = 200;

}  // namespace

pcie::Iova UserMemory::address(std::uint64_t offset) const {
  const auto position = shape_.page_offset + offset;
  const auto in_page = position & ((std::uint64_t{1} << shape_.log_page_size) - 1);
  return page_address(entries_[position >> shape_.log_page_size]) + in_page;
}

bool UserMemory::writable(std::uint64_t page) const {
  std::array<std::byte, Mtt::kSize> bytes;
  util::store_be64(bytes.data(), entries_[page]);
  return util::View<Mtt>(bytes).get(Mtt::wr_en) != 0;
}

bool UserMemory::shrink(util::WorkBudget& work) {
  while (!entries_.empty()) {
    if (work.spent()) return false;
    const auto count = std::min<std::uint64_t>(entries_.size(), kEntriesAtOnce);
    entries_.erase(entries_.end() - static_cast<std::ptrdiff_t>(count), entries_.end());
    work.charge(static_cast<std::int64_t>(count) * kUserEntryWork);
  }
  return true;
}

UserMemories::UserMemories(util::Budget& translations, const Limits& limits)
    : translations_(translations), memories_(1, Limits::count(limits.log_max_umem)) {}

/// Makes all checks, and creates the UMEM without pages.
tl::expected<UserMemory*, Refusal> UserMemories::begin(const Command& command) {
  const auto umem = command.input<CreateUmemIn>().get(CreateUmemIn::umem);
  if (command.uid == 0) {
    return refuse(Status::BAD_PARAM, kUserMemorySection, "a UMEM of uid 0 without umem_uid_0");
  }
  if (umem.get(Umem::ats) != 0) {
    return refuse(Status::BAD_PARAM, kUserMemorySection, "ats is not a capability");
  }
  const UserMemory::Shape shape{
      .log_page_size = umem.get(Umem::log_page_size) + kLogUserPageSizeBase,
      .page_offset = umem.get(Umem::page_offset),
      .pages = umem.get(Umem::num_of_mtt)};
  if (shape.log_page_size > kLogMaxUserPage || shape.page_offset >= std::uint64_t{1}
                                                                        << shape.log_page_size) {
    return refuse(Status::BAD_PARAM, kUserMemorySection, "page_offset is not in the first page");
  }
  if (shape.pages == 0) return refuse(Status::BAD_PARAM, kUserMemorySection, "a UMEM of no pages");
  if (shape.pages > (command.all.size() - CreateUmemIn::mtt_offset) / kEntrySize) {
    return refuse(Status::BAD_INPUT_LEN, kUserMemorySection, "fewer pages than num_of_mtt");
  }
  auto reservation = translations_.reserve(shape.pages);
  if (!reservation) {
    return refuse(Status::NO_RESOURCES, kUserMemorySection, "all translations are in use");
  }
  auto* memory = memories_.emplace(shape, *std::move(reservation));
  if (memory == nullptr) {
    return refuse(Status::NO_RESOURCES, kUserMemorySection, "all UMEMs are in use");
  }
  return memory;
}

tl::expected<UmemId, Refusal> UserMemories::create(const Command& command) {
  if (partial_ == nullptr) {
    const auto begun = begin(command);
    if (!begun) return tl::unexpected(begun.error());
    partial_ = *begun;
  }
  while (!partial_->complete()) {
    if (command.work.spent()) {
      command.unfinished = true;
      return UmemId();
    }
    const auto list =
        command.all.at(CreateUmemIn::mtt_offset + partial_->known_pages() * kEntrySize);
    const auto count = std::min<std::uint64_t>(
        {list.size() / kEntrySize, kEntriesAtOnce, partial_->known_pages_left()});
    for (std::uint64_t i = 0; i != count; ++i) {
      partial_->append(util::load_be64(list.data() + i * kEntrySize));
    }
    command.work.charge(static_cast<std::int64_t>(count) * kUserEntryWork);
  }
  return std::exchange(partial_, nullptr)->id();
}

CommandResult UserMemories::destroy(UmemId id, const Command& command) {
  auto* memory = memories_.find(id);
  if (memory == nullptr) return refuse(Status::BAD_RESOURCE, kUserMemorySection, "unknown UMEM");
  if (memory->in_use()) {
    return refuse(Status::BAD_RES_STATE, kUserMemorySection, "queues or keys lie in the UMEM");
  }
  if (!memory->shrink(command.work)) {
    command.unfinished = true;
    return {};
  }
  memories_.erase(id);
  return {};
}

bool UserMemories::dismantle(util::WorkBudget& work) {
  for (; shrunk_ < memories_.end(); ++shrunk_) {
    if (work.spent()) return false;
    work.charge(kUserEntryWork);
    auto* memory = memories_.find(UmemId(shrunk_));
    if (memory != nullptr && !memory->shrink(work)) return false;
  }
  return memories_.dismantle(work, [](const UserMemory&) { return kUserDestroyWork; });
}

}  // namespace softhca::connectx
