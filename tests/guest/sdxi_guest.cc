// A program for guests: driver/sdxi on an SDXI function of the PCI bus, with work that `softhca
// sdxi copy` does not do.
//
//   sdxi_guest producers ADDRESS            four threads produce for one context, one waits by
//                                           interrupt
//   sdxi_guest hostile ADDRESS WRITES       random bytes in the function's rings, tables, keys and
//                                           registers while it works (SEED=n); then it must serve
//                                           again
//   sdxi_guest crowd ADDRESS UPDATES        as many contexts as updates, at most 256, which copy
//                                           without end while UPDATES updates name all contexts
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "driver/vfio_host.h"
#include "spy_host.h"

namespace softhca::driver::sdxi {
namespace {

template <class T>
T must(util::Result<T> result, const char* what) {
  if (result) {
    if constexpr (std::is_void_v<T>) {
      return;
    } else {
      return *std::move(result);
    }
  }
  fmt::print(stderr, "sdxi_guest: {}: {}\n", what, result.error().message);
  std::exit(1);
}

/// Checks that the function works: a separate context copies 1 MiB, and the bytes are compared.
void check_function(Function& function) {
  constexpr std::size_t kSize = 1 << 20;
  auto context = must(function.make_context(), "a context");
  auto from = must(DmaBuffer::allocate(function.host(), kSize), "memory");
  auto to = must(DmaBuffer::allocate(function.host(), kSize), "memory");
  for (std::size_t i = 0; i < kSize; ++i) from.bytes()[i] = static_cast<std::byte>(i * 7 + i / 256);
  std::fill(to.bytes().begin(), to.bytes().end(), std::byte{0});
  const auto done = must(context->copy({to.iova()}, {from.iova()}, kSize), "a copy");
  must(context->wait(done), "waiting for a copy");
  if (!std::equal(from.bytes().begin(), from.bytes().end(), to.bytes().begin())) {
    fmt::print(stderr, "sdxi_guest: the copy differs\n");
    std::exit(1);
  }
}

/// Reports the state of a function that takes no descriptor from a full ring any more, and whether
/// another doorbell helps: then a doorbell was lost.
[[noreturn]] void report_stall(Function& function, const Context& context) {
  static std::mutex mutex;
  mutex.lock();  // the first thread ends the process
  auto& host = function.host();
  const auto taken = context.read_index();
  fmt::print(stderr,
             "sdxi_guest: the function has stopped at Read_Index {}, Write_Index {}, in {}\n",
             taken, context.write_index(), to_string(context.state()));
  function.ring_doorbell(context.number(), context.write_index());
  const auto until = host.now() + function.patience();
  while (context.read_index() == taken && host.now() < until) std::this_thread::yield();
  fmt::print(stderr, "sdxi_guest: {}\n",
             context.read_index() == taken ? "another doorbell does not help"
                                           : "it goes on after another doorbell: one was lost");
  std::_Exit(1);
}

/// Enqueues when the ring has room.
void enqueue(Function& function, Context& context, std::span<const Descriptor> descriptors) {
  auto& host = function.host();
  auto taken = context.read_index();
  auto since = host.now();
  while (!context.enqueue(descriptors)) {
    if (const auto now_taken = context.read_index(); now_taken != taken) {
      taken = now_taken;
      since = host.now();
    } else if (host.now() - since > function.patience()) {
      report_stall(function, context);
    }
    std::this_thread::yield();
  }
}

int producers(const std::string& address) {
  constexpr int kThreads = 4, kEach = 2000;
  auto host = must(VfioHost::open(address), "the function");
  auto function = must(Function::bring_up(*host), "bringing it up");
  auto context = must(function->make_context(), "a context");
  const auto akey = must(context->akeys().use_interrupt(1), "an interrupt");
  auto sum = must(DmaBuffer::allocate(*host, 64), "memory");
  // SDXI 5.2.1: they share the ring without a lock. Each pair must be executed just once.
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const std::array two{
          Descriptor::atomic(spec::atomic_subtype::DSC_ATM_UADD, {sum.iova()}, 8, 1),
          Descriptor::atomic(spec::atomic_subtype::DSC_ATM_UADD, {sum.iova()}, 8, 1000000)};
      for (int i = 0; i < kEach; ++i) enqueue(*function, *context, two);
    });
  }
  for (auto& thread : threads) thread.join();
  const std::array last{Descriptor::nop().fence()};
  must(context->wait_interrupt(must(context->submit(last, akey), "the last descriptor"), 1),
       "waiting for its interrupt");
  const auto value = util::load_le64(sum.bytes().data());
  if (value != std::uint64_t{kThreads} * kEach * 1000001) {
    fmt::print(stderr, "sdxi_guest: the sum of {} additions is {}\n", kThreads * kEach * 2, value);
    return 1;
  }
  check_function(*function);
  fmt::print("{} threads, {} descriptors, each executed once\n", kThreads, kThreads * kEach * 2);
  return 0;
}

/// One life of a function: brought up properly, then its memory and registers are overwritten at
/// random.
class Attack {
 public:
  Attack(SpyHost& host, std::mt19937_64& source) : host_(host), source_(source) {}

  /// Returns the number of writes.
  std::uint64_t run(unsigned actions) {
    auto up = Function::bring_up(host_, {.interrupt_vectors = 4,
                                         .error_log_power = 0,
                                         .rkeys_power = 0,
                                         .patience = std::chrono::milliseconds(100)});
    if (!up) return 0;
    auto function = *std::move(up);
    auto memory = DmaBuffer::allocate(host_, kMemory);
    if (!memory) return 0;
    std::vector<std::unique_ptr<Context>> contexts;
    for (int i = 0; i < 4; ++i) {
      if (auto context = function->make_context(64)) contexts.push_back(*std::move(context));
    }
    (void)function->grant(0);
    (void)function->grant(1);
    std::uint64_t writes = 0;
    for (unsigned i = 0; i < actions; ++i) writes += act(contexts, *memory);
    return writes;
  }

 private:
  static constexpr std::size_t kMemory = 256 << 10;

  std::uint64_t below(std::uint64_t limit) { return source_() % limit; }

  unsigned act(std::vector<std::unique_ptr<Context>>& contexts, const DmaBuffer& memory) {
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
        return scribble();
      case 3:
        return write_register();
      case 4:
        ring(static_cast<std::uint16_t>(below(130)), source_());
        return 1;
      default:
        return produce(contexts, memory);
    }
  }

  /// Overwrites tables, keys, rings, status, completion blocks or data with random bytes, or flips
  /// a bit.
  unsigned scribble() {
    const auto& region = host_.taken()[below(host_.taken().size())];
    auto* at = region.bytes.data() + below(region.bytes.size() / 8) * 8;
    const auto words = std::min<std::uint64_t>(
        1 + below(8), static_cast<std::uint64_t>(&region.bytes.back() + 1 - at) / 8);
    for (std::uint64_t i = 0; i < words; ++i, at += 8) {
      auto* word = reinterpret_cast<std::uint64_t*>(at);
      const bool turn = below(2) == 0;
      const auto value = turn ? *word ^ std::uint64_t{1} << below(64) : source_();
      __atomic_store_n(word, value, __ATOMIC_RELAXED);
    }
    return static_cast<unsigned>(words);
  }

  /// Writes any register of SDXI 9 outside of the MSI-X table, which belongs to the kernel.
  unsigned write_register() {
    constexpr std::array kNamed{
        spec::mmio_register::MMIO_CTL0,    spec::mmio_register::MMIO_GRP_ENUM,
        spec::mmio_register::MMIO_CTL2,    spec::mmio_register::MMIO_CXT_L2,
        spec::mmio_register::MMIO_RKEY,    spec::mmio_register::MMIO_ERR_CTL,
        spec::mmio_register::MMIO_ERR_STS, spec::mmio_register::MMIO_ERR_CFG,
        spec::mmio_register::MMIO_ERR_WRT, spec::mmio_register::MMIO_ERR_RD,
        spec::mmio_register::MMIO_MB_CTL,  spec::mmio_register::MMIO_MBS_CTL};
    const auto msix = static_cast<std::uint64_t>(spec::mmio_register::MMIO_MSIX);
    const auto offset = below(2) == 0 ? static_cast<std::uint64_t>(kNamed[below(kNamed.size())])
                                      : below(msix / 8) * 8;
    std::array<std::byte, 8> value;
    util::store_le64(value.data(), source_());
    host_.write_bar(0, offset, value);
    host_.read_bar(0, offset, value);
    return 1;
  }

  void ring(std::uint16_t context, std::uint64_t value) {
    std::array<std::byte, 8> bytes;
    util::store_le64(bytes.data(), value);
    host_.write_bar(2, std::uint64_t{context} % 128 * 4096, bytes);
  }

  /// Posts a valid descriptor, or one with random fields.
  unsigned produce(std::vector<std::unique_ptr<Context>>& contexts, const DmaBuffer& memory) {
    if (contexts.empty()) return 0;
    auto& context = *contexts[below(contexts.size())];
    const auto half = kMemory / 2;
    const Buffer from{memory.iova(below(half)), static_cast<std::uint16_t>(below(3))};
    const Buffer to{memory.iova(half + below(half)), static_cast<std::uint16_t>(below(3))};
    Descriptor descriptor;
    switch (below(4)) {
      case 0:
        descriptor = Descriptor::copy(to, from, 1 + below(4096));
        break;
      case 1:
        descriptor = Descriptor::copy(to, from, 1 + below(std::uint64_t{1} << 32));
        break;
      case 2:
        descriptor = Descriptor::interrupt(static_cast<std::uint16_t>(below(4)));
        break;
      default:
        descriptor =
            Descriptor::atomic(static_cast<spec::atomic_subtype>(below(16)),
                               {to.at & ~7ull, to.akey}, 8, source_(), source_(), from.at & ~7ull);
    }
    std::array one{descriptor};
    (void)context.enqueue(one);
    return 1;
  }

  SpyHost& host_;
  std::mt19937_64& source_;
};

int hostile(const std::string& address, std::uint64_t most) {
  const char* seed = std::getenv("SEED");
  std::mt19937_64 source(seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1);
  // On a busy machine the bring-up may exceed a life's patience.
  const auto latest = util::monotonic_now() + std::chrono::minutes(5);
  std::uint64_t writes = 0, lives = 0;
  const auto goes_on = [&] { return writes < most && util::monotonic_now() < latest; };
  while (goes_on()) {
    SpyHost host(must(VfioHost::open(address), "the function"));
    for (int i = 0; i < 4 && goes_on(); ++i, ++lives) {
      writes += Attack(host, source).run(2000);
    }
  }
  fmt::print("hostile: {} writes in {} lives of the function\n", writes, lives);
  auto host = must(VfioHost::open(address), "the function, after all");
  auto function = must(Function::bring_up(*host), "bringing it up, after all");
  check_function(*function);
  return writes >= most ? 0 : 1;
}

/// Ends the process while the contexts copy.
int crowd(const std::string& address, unsigned most_updates) {
  constexpr std::size_t kSize = 1 << 20;
  auto host = must(VfioHost::open(address), "the function");
  auto function = must(Function::bring_up(*host), "bringing it up");
  const auto memory = must(DmaBuffer::allocate(*host, 2 * kSize), "memory");
  const std::array one{Descriptor::copy({memory.iova(kSize)}, {memory.iova()}, kSize)};
  std::vector<std::unique_ptr<Context>> contexts;
  // Context 0 only administers the others.
  const auto most =
      std::min<std::size_t>({most_updates, 256, function->capabilities().max_context});
  while (contexts.size() < most) {
    contexts.push_back(must(function->make_context(64), "a context"));
    while (contexts.back()->enqueue(one)) {
    }
  }
  std::array all{
      Descriptor::update_contexts(spec::tgt_pcd::UPD_L2, 1, function->capabilities().max_context)};
  for (unsigned updates = 0; updates != most_updates; ++updates) {
    must(function->administer(all), "an update of all contexts");
    for (const auto& context : contexts) (void)context->enqueue(one);
  }
  fmt::print("crowd: {} contexts, {} updates of all\n", contexts.size(), most_updates);
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace
}  // namespace softhca::driver::sdxi

int main(int argc, char** argv) {
  using namespace softhca::driver::sdxi;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "producers") return producers(words[1]);
  if (words.size() == 3 && words[0] == "hostile") return hostile(words[1], std::stoull(words[2]));
  if (words.size() == 3 && words[0] == "crowd") return crowd(words[1], std::stoul(words[2]));
  fmt::print(stderr,
             "usage: sdxi_guest producers ADDRESS | hostile ADDRESS WRITES | "
             "crowd ADDRESS UPDATES\n");
  return 2;
}
