#include "fabric/shared_faults.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "os/file_size.h"
#include "util/log.h"
#include "util/nearest.h"
#include "util/rule_words.h"

namespace softhca::fabric {
namespace {

constexpr std::size_t kIdAt = offsetof(SharedFaults::Slot, id);
constexpr std::size_t kSizeAt = offsetof(SharedFaults::Slot, size);
constexpr std::size_t kCountersAt = offsetof(SharedFaults::Slot, counters);
constexpr std::size_t kTextAt = offsetof(SharedFaults::Slot, text);

std::size_t offset_of(std::size_t slot) {
  return offsetof(SharedFaults, slots) + slot * sizeof(SharedFaults::Slot);
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

bool put(const os::UniqueFd& file, std::size_t offset, std::span<const std::byte> bytes) {
  return os::write_at(file.get(), bytes, static_cast<off_t>(offset));
}

util::Result<SharedFaults*> map(const std::string& path) {
  const os::UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return util::fail_errno(path);
  if (::lseek(file.get(), 0, SEEK_END) < static_cast<off_t>(sizeof(SharedFaults))) {
    return util::fail(path + ": too short");
  }
  void* const at =
      ::mmap(nullptr, sizeof(SharedFaults), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return util::fail_errno(path);
  return static_cast<SharedFaults*>(at);
}

}  // namespace

util::Result<FaultBook> FaultBook::create(std::string path, std::vector<std::string> ports) {
  os::UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return util::fail_errno(fmt::format("'{}'", path));
  // New bytes are zero: no rules.
  if (auto sized = os::set_file_size(file.get(), sizeof(SharedFaults), path); !sized) {
    return tl::unexpected(sized.error());
  }
  // On a full file system a page without a block would raise SIGBUS.
  if (::posix_fallocate(file.get(), 0, sizeof(SharedFaults)) != 0) {
    return util::fail(fmt::format("'{}': there is no room for it", path));
  }
  return FaultBook(std::move(path), std::move(file), std::move(ports));
}

/// Writes a slot, or with id 0 frees it, while the generation is odd.
util::Result<void> FaultBook::write(std::size_t slot, Id id, std::string_view text) {
  const auto at = offset_of(slot);
  const auto size = static_cast<std::uint32_t>(text.size());
  constexpr std::array<std::byte, sizeof(NetworkFaults::Counters)> kZeros{};
  ++generation_;
  bool good = put(file_, offsetof(SharedFaults, generation), bytes_of(generation_));
  good = good && put(file_, at + kTextAt, std::as_bytes(std::span(text)));
  good = good && put(file_, at + kSizeAt, bytes_of(size));
  good = good && put(file_, at + kCountersAt, kZeros);
  good = good && put(file_, at + kIdAt, bytes_of(id));
  ++generation_;
  good = put(file_, offsetof(SharedFaults, generation), bytes_of(generation_)) && good;
  return good ? util::Result<void>() : util::fail_errno(fmt::format("'{}'", path_));
}

util::Result<std::string> FaultBook::add(std::string_view text) {
  auto rule = parse_fault(text);
  if (!rule) return tl::unexpected(rule.error());
  if (rule->port != "*" && std::ranges::find(ports_, rule->port) == ports_.end()) {
    return util::fail(
        fmt::format("there is no port '{}'{}", rule->port, util::nearest(rule->port, ports_)));
  }
  const auto words = to_text(*rule);
  if (words.size() > SharedFaults::kTextMax) {
    return util::fail(fmt::format("a rule has at most {} bytes", SharedFaults::kTextMax));
  }
  std::vector<bool> taken(SharedFaults::kSlots);
  for (const auto& [id, known] : rules_) taken[known.slot] = true;
  const auto free = std::ranges::find(taken, false);
  if (free == taken.end()) {
    return util::fail(fmt::format("there are {} rules already", SharedFaults::kSlots));
  }
  const auto slot = static_cast<std::size_t>(free - taken.begin());
  if (auto written = write(slot, last_ + 1, words); !written) {
    return tl::unexpected(written.error());
  }
  const auto added = rules_.emplace(++last_, Rule{.slot = slot, .rule = *std::move(rule)}).first;
  return line(added->first, added->second);
}

bool FaultBook::remove(Id id) {
  const auto found = rules_.find(id);
  if (found == rules_.end()) return false;
  (void)write(found->second.slot, 0, {});
  rules_.erase(found);
  return true;
}

void FaultBook::clear() {
  while (!rules_.empty()) (void)remove(rules_.begin()->first);
}

std::string FaultBook::line(Id id, const Rule& rule) const {
  std::array<std::uint64_t, 3> numbers{};
  static_assert(sizeof numbers == sizeof(NetworkFaults::Counters));
  const auto at = static_cast<off_t>(offset_of(rule.slot) + kCountersAt);
  // A truncated file reads as zeros.
  (void)!::pread(file_.get(), numbers.data(), sizeof numbers, at);
  NetworkFaults::Counters counters;
  counters.matched = numbers[0];
  counters.fired = numbers[1];
  counters.lost = numbers[2];
  return fmt::format("n{}: {}\n", id, counts_text(rule.rule, counters));
}

std::string FaultBook::list() const {
  std::string text;
  for (const auto& [id, rule] : rules_) text += line(id, rule);
  return text;
}

util::Result<std::string> FaultBook::answer(std::string_view verb, std::string_view argument) {
  if (verb == "add") return add(argument);
  if (verb == "remove") {
    const auto digits = argument.starts_with('n') ? argument.substr(1) : argument;
    const auto id = util::parse_number<Id>(digits);
    if (id && remove(*id)) return std::string();
    return util::fail(fmt::format("there is no rule '{}'; see fault list", argument));
  }
  if (!argument.empty()) return util::fail(fmt::format("fault {} takes no argument", verb));
  if (verb != "list" && verb != "clear") {
    return util::fail("fault takes add RULE, list, remove NUMBER or clear");
  }
  auto text = list();
  if (verb == "clear") clear();
  return text;
}

FaultReader::FaultReader(const std::string& path, NetworkFaults& faults) : faults_(faults) {
  const auto shared = map(path);
  if (!shared) {
    util::log(util::LogLevel::kWarning, "the network rules of the run do not act here: {}",
              shared.error().message);
    return;
  }
  shared_ = *shared;
  follow();
}

FaultReader::~FaultReader() {
  faults_.clear();  // its rules count in the file
  if (shared_ != nullptr) ::munmap(shared_, sizeof(SharedFaults));
}

/// Every access of the file would fault, and a turn with a fault counts as not done. The mapping
/// stays: others may have been put in its place until the turn ends.
void FaultReader::lose() {
  is_lost_ = true;
  rules_.clear();
  faults_.clear();
  util::log(util::LogLevel::kWarning,
            "the network rules of the run no longer act here: their file has become too short");
}

/// If the writer changes it meanwhile, the next call reads it again.
void FaultReader::read() {
  const auto generation = shared_->generation.load(std::memory_order_acquire);
  const bool is_changing = generation % 2 != 0;
  if (is_changing) return;
  struct Found {
    SharedFaults::Slot* slot;
    std::string text;
  };
  std::map<std::uint32_t, Found> found;
  for (auto& slot : shared_->slots) {
    const auto id = slot.id;
    const auto size = std::min<std::size_t>(slot.size, SharedFaults::kTextMax);
    if (id != 0) found[id] = {.slot = &slot, .text = std::string(slot.text.data(), size)};
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  if (shared_->generation.load(std::memory_order_relaxed) != generation) return;
  generation_ = generation;
  std::erase_if(rules_, [&](const auto& one) {
    const bool gone = !found.contains(one.first);
    if (gone) (void)faults_.remove(one.second);
    return gone;
  });
  for (const auto& [id, one] : found) {
    if (rules_.contains(id) || faults_.rules().size() == NetworkFaults::kMax) continue;
    // Any process of the run may have written the text.
    if (auto rule = parse_fault(one.text)) {
      rules_[id] = faults_.add(*std::move(rule), &one.slot->counters);
    }
  }
}

}  // namespace softhca::fabric
