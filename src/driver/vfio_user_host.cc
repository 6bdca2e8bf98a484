#include "driver/vfio_user_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "driver/pci.h"
#include "os/file_size.h"
#include "util/log.h"

namespace softhca::driver {

namespace protocol = vfio_user::protocol;

namespace {

/// progress() polls the socket once in this many calls.
constexpr unsigned kTurnsPerLook = 64;

}  // namespace

VfioUserHost::VfioUserHost(vfio_user::Client client, Options options)
    : options_(std::move(options)),
      client_(std::move(client)),
      next_iova_(kFirstIova),
      pool_([this](std::size_t size) { return add_arena(size); }) {}

util::Result<std::unique_ptr<VfioUserHost>> VfioUserHost::connect(const std::string& path,
                                                                  Options options) {
  auto client = vfio_user::Client::connect(path, {options.timeout, options.pump});
  if (!client) {
    return util::fail(client.error().message + " (is a server running there? softhca serve)");
  }
  std::unique_ptr<VfioUserHost> host(new VfioUserHost(*std::move(client), std::move(options)));
  if (auto agreed = host->client_.negotiate(); !agreed) {
    return util::fail(
        fmt::format("{}: {} (a server has one client at a time)", path, agreed.error().message));
  }
  if (auto ok = host->inspect(); !ok) {
    return util::fail(fmt::format("{}: {}", path, ok.error().message));
  }
  return host;
}

util::Result<void> VfioUserHost::inspect() {
  const protocol::DeviceInfo request{
      .argsz = sizeof request, .flags = 0, .num_regions = 0, .num_irqs = 0};
  const auto reply = client_.call(protocol::Command::kDeviceGetInfo, request);
  if (!reply) return tl::unexpected(reply.error());
  if (reply->error != 0 || reply->payload.size() < sizeof(protocol::DeviceInfo)) {
    return util::fail("the server does not report its device");
  }
  const auto info = protocol::load<protocol::DeviceInfo>(reply->payload);
  if ((info.flags & protocol::kDeviceFlagPci) == 0 || info.num_regions < protocol::kRegionCount) {
    return util::fail("the server's device is not a PCI device");
  }
  return {};
}

VfioUserHost::~VfioUserHost() {
  if (!lost_) (void)client_.reset();
  for (const auto& arena : arenas_) ::munmap(arena.bytes.data(), arena.bytes.size());
}

void VfioUserHost::check(bool good, std::string_view what) {
  if (good || lost_.exchange(true)) return;
  util::log(util::LogLevel::kError, "vfio-user: {} failed, the server is gone", what);
}

void VfioUserHost::read_region(std::uint32_t region, std::uint64_t offset,
                               std::span<std::byte> out) {
  const std::lock_guard lock(mutex_);
  const bool good = !lost_ && client_.read_region(region, offset, out) == 0;
  if (!good) std::fill(out.begin(), out.end(), std::byte{0xff});
  check(good, "a read");
}

void VfioUserHost::read_config(std::uint32_t offset, std::span<std::byte> out) {
  read_region(protocol::kConfigRegion, offset, out);
}

void VfioUserHost::write_config(std::uint32_t offset, std::span<const std::byte> in) {
  const std::lock_guard lock(mutex_);
  if (!lost_) check(client_.write_region(protocol::kConfigRegion, offset, in) == 0, "a write");
}

void VfioUserHost::read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) {
  read_region(bar, offset, out);
}

void VfioUserHost::write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) {
  const std::lock_guard lock(mutex_);
  if (!lost_) check(client_.post_region(bar, offset, in), "a write");
}

util::Result<DmaRegion> VfioUserHost::add_arena(std::size_t size) {
  const auto what = fmt::format("{} bytes of memory to share", size);
  os::UniqueFd file(::memfd_create("softhca-dma", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return util::fail_errno(what);
  // The server maps these pages: if the file could be shortened, the server would crash.
  if (auto sized = os::set_file_size(file.get(), size, what); !sized) {
    return tl::unexpected(sized.error());
  }
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return util::fail_errno(what);
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return util::fail_errno(what);
  const std::lock_guard lock(mutex_);
  if (const int error = client_.map_dma(next_iova_, size, file.get(), 0); error != 0) {
    ::munmap(memory, size);
    return util::fail(fmt::format("the server does not take {}: {}", what,
                                  error < 0 ? "no answer" : std::strerror(error)));
  }
  auto* bytes = static_cast<std::byte*>(memory);
  const DmaRegion region{{bytes, size}, next_iova_};
  arenas_.push_back(region);
  next_iova_ += size;
  return region;
}

const DmaRegion* VfioUserHost::arena_of(std::span<const std::byte> bytes) const {
  const auto found = std::ranges::find_if(arenas_, [&](const DmaRegion& arena) {
    return bytes.data() >= arena.bytes.data() &&
           bytes.data() + bytes.size() <= arena.bytes.data() + arena.bytes.size();
  });
  return found == arenas_.end() ? nullptr : &*found;
}

util::Result<DmaRegion> VfioUserHost::map(std::span<std::byte> bytes) {
  if (bytes.empty()) return util::fail("DMA mapping of 0 bytes");
  if (const auto* arena = arena_of(bytes)) {
    const auto offset = static_cast<std::size_t>(bytes.data() - arena->bytes.data());
    const auto begin = offset / kPageSize * kPageSize;
    const auto size = round_up(offset + bytes.size(), kPageSize) - begin;
    return DmaRegion{arena->bytes.subspan(begin, size), arena->iova + begin};
  }
  if (options_.pump) return util::fail("a program's own memory needs a server that runs by itself");
  const auto skip = reinterpret_cast<std::uintptr_t>(bytes.data()) % kPageSize;
  const auto size = round_up(skip + bytes.size(), kPageSize);
  const DmaRegion region{{bytes.data() - skip, size}, next_iova_};
  const std::lock_guard lock(mutex_);
  if (const int error = client_.map_remote_dma(region.iova, region.bytes); error != 0) {
    return util::fail(fmt::format("the server does not map {} bytes: {}", size,
                                  error < 0 ? "no answer" : std::strerror(error)));
  }
  next_iova_ = round_up(next_iova_ + size + kPageSize, DmaPool::kArenaSize);
  ++mapped_;
  return region;
}

void VfioUserHost::unmap(const DmaRegion& region) {
  if (arena_of(region.bytes) != nullptr) return;
  const std::lock_guard lock(mutex_);
  if (!lost_) check(client_.unmap_dma(region.iova, region.bytes.size()) == 0, "an unmap");
  --mapped_;
}

util::Result<void> VfioUserHost::enable_interrupts(unsigned count) {
  auto interrupts = EventfdInterrupts::create(count);
  if (!interrupts) return tl::unexpected(interrupts.error());
  interrupts_ = *std::move(interrupts);
  // One at a time: a server need not accept more than one descriptor per message.
  const auto fds = interrupts_.fds();
  for (unsigned vector = 0; vector < count; ++vector) {
    const std::lock_guard lock(mutex_);
    const int error =
        client_.set_irqs(protocol::kIrqSetDataEventfd | protocol::kIrqSetActionTrigger,
                         protocol::kMsixIrqIndex, vector, 1, {}, std::span(fds).subspan(vector, 1));
    if (error != 0) {
      return util::fail(fmt::format("the server does not offer {} interrupt vectors: {}", count,
                                    error < 0 ? "no answer" : std::strerror(error)));
    }
  }
  return enable_msix(*this, count);
}

void VfioUserHost::disable_interrupts() {
  if (lost_) return;
  disable_msix(*this);
  (void)client_.set_irqs(protocol::kIrqSetDataNone | protocol::kIrqSetActionTrigger,
                         protocol::kMsixIrqIndex, 0, 0);
}

void VfioUserHost::wait_interrupt(unsigned vector, util::Time until) {
  if (options_.pump) return progress();
  interrupts_.wait(vector, lost_ ? -1 : client_.fd(), until);
  serve_client();
}

void VfioUserHost::serve_client() {
  const std::lock_guard lock(mutex_);
  check(lost_ || client_.serve(), "waiting");
}

void VfioUserHost::progress() {
  if (options_.pump) options_.pump();
  if (mapped_ > 0 || ++turns_ % kTurnsPerLook == 0) serve_client();
  // The server needs the processor as much as this driver does.
  if (!options_.pump) std::this_thread::yield();
}

}  // namespace softhca::driver
