#include "door/engine.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "door/addresses.h"
#include "door/fault_guard.h"
#include "door/inline_progress.h"
#include "door/interpose.h"
#include "door/tree/tree.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/memory_faults.h"

namespace softhca::door {
namespace {

/// Frames that a turn takes from the hub and delivers.
constexpr std::size_t kFrames = 256;
/// The first 4 KiB stay out, so that a null pointer is no memory.
constexpr std::uint64_t kFirstAddress = 4096;

/// Three requests, within a second.
constexpr unsigned kArpTries = 3;
constexpr auto kArpPatience = std::chrono::milliseconds(300);
constexpr auto kArpNap = std::chrono::microseconds(50);

void write_one(int eventfd) {
  const std::uint64_t one = 1;
  (void)!::write(eventfd, &one, sizeof one);
}

/// Keeps the signals of the program away from a thread that is made meanwhile.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

util::Result<std::unique_ptr<Engine>> Engine::create(const std::string& directory) {
  std::unique_ptr<Engine> engine(new Engine);
  catch_faults();
  if (auto good = engine->set_up(directory); !good) return tl::unexpected(good.error());
  const SignalsBlocked blocked;
  std::thread(&Engine::work, engine.get()).detach();
  return engine;
}

util::Result<void> Engine::join(const std::string& directory) {
  auto joined = hub::join(directory + "/hub");
  if (!joined) return tl::unexpected(joined.error());
  joined_.emplace(std::move(*joined));
  link_ = std::make_unique<fabric::RingPort>(switch_.create_port("hub"), std::move(*joined_->out),
                                             std::move(*joined_->in));
  poke_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poke_) return util::fail_errno("eventfd");
  return {};
}

util::Result<void> Engine::set_up(const std::string& directory) {
  if (auto good = join(directory); !good) return good;
  const auto number = joined_->number;
  const auto mac = mac_of(number);
  address_ = take_address(directory, number);
  device_port_ = switch_.create_port("device");
  neighbours_ = std::make_unique<hub::Neighbours>(*device_port_, wire::MacAddress{mac.bytes},
                                                  ipv4_of(address_.gid));
  fault_port_ = std::make_unique<FaultPort>(*neighbours_);
  connectx::DeviceOptions options;
  options.name = "mlx5_0";
  options.mac = wire::MacAddress{mac.bytes};
  options.node_guid = options.mac.to_u64();
  model_ = std::make_unique<connectx::Device>(std::move(options), *fault_port_);
  host_ = std::make_unique<driver::InProcessHost>(
      *model_, driver::InProcessHost::Options{.progress = [this] {
        (void)switch_.deliver(kFrames);
        next_ = model_->run(util::monotonic_now());
        (void)switch_.deliver(kFrames);
      }});
  const auto mapped = model_->dma().map(
      uverbs::Device::bus_address(kFirstAddress), uverbs::Device::kProgramMemory - kFirstAddress,
      reinterpret_cast<std::byte*>(kFirstAddress), pcie::DmaAccess::kReadWrite);
  if (!mapped) return tl::unexpected(mapped.error());
  auto hca = driver::connectx::Hca::open(*host_, {.port_events = false});
  if (!hca) return tl::unexpected(hca.error());
  hca_ = *std::move(hca);
  directory_ = directory;
  auto device = uverbs::Device::create(
      *hca_, {.gids = gids_of(mac, address_.gid),
              .node_guid = kNodeGuid,
              .interface_index = 0,
              .find_mac = [this](const auto& to, auto& its) { return find_mac(to, its); },
              .ask_for_mac = [this](const auto& to, auto& its) { return ask_for_mac(to, its); }});
  if (!device) return tl::unexpected(device.error());
  device_ = *std::move(device);
  // Another process may have had it before.
  if (!is_process(address_.gid)) neighbours_->announce();
  return {};
}

bool Engine::find_mac(const driver::Gid& to, driver::Mac& mac) const {
  const bool own = to == address_.gid;
  if (own) mac = mac_of(joined_->number);
  if (own || door::find_mac(to, mac)) return true;
  const auto known = to.is_ipv4() ? neighbours_->find(ipv4_of(to)) : std::nullopt;
  if (known) mac.bytes = known->bytes;
  return known.has_value();
}

bool Engine::ask_for_mac(const driver::Gid& to, driver::Mac& mac) {
  if (!to.is_ipv4()) return false;
  for (unsigned tries = 0; tries != kArpTries; ++tries) {
    neighbours_->ask(ipv4_of(to));
    for (const auto end = util::monotonic_now() + kArpPatience; util::monotonic_now() < end;) {
      (void)exchange();
      if (find_mac(to, mac)) return true;
      std::this_thread::sleep_for(kArpNap);
    }
  }
  return false;
}

bool Engine::exchange() {
  const bool any = link_->receive(kFrames) != 0;
  host_->progress();
  if (link_->settle()) write_one(joined_->wake_hub.get());
  return any;
}

int Engine::open() {
  const std::lock_guard held(lock_);
  drop_closed();
  int fd = -1;
  auto file = DeviceFile::create(fd);
  if (!file) return -EMFILE;
  const auto inode = file->inode();
  // The entry stays where it is for as long as its context.
  auto& entry = files_.emplace(inode, File{*std::move(file), nullptr}).first->second;
  uverbs::Context::Options options{
      .give =
          [](vfio_user::UniqueFd given) {
            const int number = ::fcntl(given.get(), F_DUPFD_CLOEXEC, 0);
            return number < 0 ? -errno : number;
          },
      .take_back = [](int number) { ::close(number); },
      .identify = [](int number) -> std::uint64_t {
        struct stat status{};
        return ::fstat(number, &status) == 0 ? status.st_ino : 0;
      },
      .copy = [](int number) { return vfio_user::UniqueFd(::fcntl(number, F_DUPFD_CLOEXEC, 0)); },
      .made_cq = [fd](std::uint64_t user_handle) { wrap_poll(user_handle, fd); },
      .store = [&entry](auto offset, auto bytes) { return entry.file.store(offset, bytes); }};
  entry.context = std::make_unique<uverbs::Context>(*device_, memory_, std::move(options));
  return fd;
}

bool Engine::owns(dev_t device, ino_t inode) {
  const std::lock_guard held(lock_);
  const auto at = files_.find(inode);
  return at != files_.end() && at->second.file.device() == device;
}

bool Engine::serve(int fd, void* argument, int& result) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return false;
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  const auto at = files_.find(status.st_ino);
  if (at == files_.end() || at->second.file.device() != status.st_dev) return false;
  (void)turn();
  result = -at->second.context->serve(reinterpret_cast<std::uint64_t>(argument));
  (void)turn();
  poke();
  return true;
}

void Engine::progress() {
  if (!lock_.try_lock()) return;
  const std::lock_guard held(lock_, std::adopt_lock);
  const OwnCalls own;
  const FaultGuard guard;
  inline_turns_.fetch_add(1, std::memory_order_relaxed);
  (void)turn();
}

/// The contexts that nobody has open any more.
void Engine::drop_closed() {
  std::erase_if(files_, [](const auto& entry) { return entry.second.file.closed(); });
  if (rdma_cm_ != nullptr) rdma_cm_->drop_closed();
}

bool Engine::turn() {
  bool busy = link_->receive(kFrames) != 0;
  busy |= device_->records().scan();
  host_->progress();
  if (util::MemoryFaults::pending()) busy |= handle_faults();
  if (link_->settle()) write_one(joined_->wake_hub.get());
  busy |= device_->poll_events();
  for (auto& [inode, file] : files_) file.context->flush_events();
  if (rdma_cm_ != nullptr) rdma_cm_->tick();
  return busy || switch_.has_work();
}

/// The program has taken away what the device was to use.
bool Engine::handle_faults() {
  for (const auto& fault : noted_faults()) {
    for (auto& [inode, file] : files_) {
      file.context->lose_memory(fault.address, fault.was_write);
    }
  }
  release_faults();
  return true;
}

void Engine::poke() { write_one(poke_.get()); }

void Engine::stop() {
  stopping_ = true;
  // Whoever is at work now gets ready; nobody begins anew.
  lock_.lock();
  if (rdma_cm_ == nullptr) return;
  const OwnCalls own;
  const FaultGuard guard;
  rdma_cm_->disconnect_all();
  (void)turn();
  (void)turn();
}

}  // namespace softhca::door
