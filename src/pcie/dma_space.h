// The memory that a function reaches by DMA: maps IOVA (bus address) to host memory.
//
// A mapping points to memory of this process: a guest's memory mapped by file descriptor, or the
// process's own. Or it stands for memory that only a peer can reach, by messages (vfio-user
// DMA_READ and DMA_WRITE). Hot paths use a pointer from translate(), and fall back to read() and
// write(), which handle both kinds.
//
// While the function is no bus master (PCIe 5.0 7.5.1.1.3), or is not in D0, no memory is
// reachable: every access fails as in unmapped memory. The host's mappings are kept.
//
// Only the loop that owns the function changes it. A device's own threads may look up and access
// memory concurrently if set_threads() names them: they pause for every change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "pcie/device_threads.h"
#include "util/result.h"

namespace softhca::pcie {

/// A bus address.
using Iova = std::uint64_t;

/// The access that a mapping permits, or that a requester wants.
enum class DmaAccess : std::uint8_t { kRead = 1, kWrite = 2, kReadWrite = 3 };

/// Memory that a peer reads and writes for the function.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  /// False if the peer refused or is gone; `out` is undefined then.
  virtual bool dma_read(Iova from, std::span<std::byte> out) = 0;
  virtual bool dma_write(Iova to, std::span<const std::byte> in) = 0;
};

/// Observes the reads and writes of a device.
class DmaTap {
 public:
  virtual ~DmaTap() = default;
  /// `size` bytes at `iova` were read or written.
  virtual void handle_dma(Iova iova, std::size_t size, DmaAccess access) = 0;
};

/// While one exists in a thread, that thread reaches only memory of this process; accesses to
/// memory behind a peer fail immediately. For a device's own threads, because only the loop
/// communicates with peers.
class LocalMemoryOnly {
 public:
  LocalMemoryOnly();
  ~LocalMemoryOnly();
  LocalMemoryOnly(const LocalMemoryOnly&) = delete;
  LocalMemoryOnly& operator=(const LocalMemoryOnly&) = delete;

  /// True if the calling thread has one.
  static bool active();
  /// True if an access of this thread failed because of it since the last call.
  static bool take_refusal() { return std::exchange(refused_, false); }
  static void note_refusal() { refused_ = true; }

 private:
  static constinit inline thread_local bool refused_ = false;
};

/// Counts accesses to memory behind a peer: each is a message and its reply, and is charged to a
/// budget.
class RemoteAccesses {
 public:
  static void add() { ++count_; }
  /// True if this thread made any since the last take().
  static bool any() { return count_ != 0; }
  /// Returns their number and resets it.
  static std::uint64_t take() { return std::exchange(count_, 0); }
  /// Returns their work (util::WorkBudget): several system calls each, and two changes of thread.
  static std::int64_t take_work() { return static_cast<std::int64_t>(take()) * kWork; }

 private:
  static constexpr std::int64_t kWork = 6'000;
  static constinit inline thread_local std::uint64_t count_ = 0;
};

class DmaSpace {
 public:
  /// The device's own threads, which use translations; null if there are none.
  void set_threads(DeviceThreads* threads) { threads_ = threads; }
  /// From now on only read() and write() reach memory, as if all of it were behind a peer, and
  /// report to `tap`. No translations are available, and the device's own threads must not access
  /// memory. Null: no tap.
  void set_tap(DmaTap* tap);
  /// Sets a hook that is called before memory becomes unreachable: the holder of a pointer into it,
  /// such as a frame in transit, then copies what it needs. The hook returns the cost (see
  /// util::WorkBudget), and must not throw.
  void set_before_loss(std::function<std::int64_t()> hook) { before_loss_ = std::move(hook); }
  /// The cost of these calls since the last take_loss_work().
  std::int64_t take_loss_work() { return std::exchange(loss_work_, 0); }

  /// Maps [iova, iova + size) to `host`. Fails on size 0, wrap-around, or overlap with another
  /// mapping. The memory must stay valid until it is unmapped.
  util::Result<void> map(Iova iova, std::uint64_t size, std::byte* host, DmaAccess access);
  /// The same for memory that only `memory` reaches.
  util::Result<void> map_remote(Iova iova, std::uint64_t size, RemoteMemory& memory,
                                DmaAccess access);
  /// Removes the mapping of exactly [iova, iova + size); fails if there is none.
  util::Result<void> unmap(Iova iova, std::uint64_t size);
  /// True if a byte of [iova, iova + size) is already mapped.
  bool overlaps(Iova iova, std::uint64_t size) const;

  /// Called when Bus Master Enable or the power state was written. Initially true: a space without
  /// a function is always reachable.
  void set_bus_master(bool enabled);

  /// The host address of [iova, iova + size) if one local mapping that allows `access` contains all
  /// of it; else null. Valid until generation() changes.
  std::byte* translate(Iova iova, std::uint64_t size, DmaAccess access) const;

  /// The first part of [iova, iova + size), up to the end of one local mapping: for copies across
  /// several mappings. Empty if the first byte is not local memory that allows `access`.
  std::span<std::byte> translate_prefix(Iova iova, std::uint64_t size, DmaAccess access) const;

  /// One local mapping, for a user that accesses many addresses in it. Valid as long as a pointer
  /// from translate().
  struct Window {
    Iova first = 0;
    std::uint64_t size = 0;  ///< bytes
    std::byte* host = nullptr;

    /// The host address of [iova, iova + length) if the window contains all of it; else null.
    /// @pre length is not 0
    std::byte* find(Iova iova, std::uint64_t length) const {
      const auto offset = iova - first;  // wraps to a large number if iova is below
      return offset < size && length <= size - offset ? host + offset : nullptr;
    }
  };
  /// The local mapping that contains `iova` and allows `access`; empty if there is none.
  Window window(Iova iova, DmaAccess access) const;

  /// Reads across mappings of both kinds. False if a part is unmapped or not readable; `out` is
  /// undefined then.
  bool read(Iova from, std::span<std::byte> out) const;
  /// False if a part is unmapped or not writable; bytes before that part may have been written.
  bool write(Iova to, std::span<const std::byte> in) const;

  /// Changes with every unmap, and when bus mastering is switched. A result of translate(), also
  /// null, is valid while this does not change.
  std::uint64_t generation() const { return generation_; }

  struct Mapping {
    Iova iova;
    std::uint64_t size;    ///< bytes
    std::byte* host;       ///< null: remote
    RemoteMemory* remote;  ///< null: local
    DmaAccess access;
  };
  /// All mappings, by ascending IOVA, whether bus mastering is enabled or not.
  std::span<const Mapping> mappings() const { return mappings_; }
  /// The mappings that end at `first` or above.
  std::span<const Mapping> mappings_from(Iova first) const;
  /// Removes `part` of mappings() in one step, and returns the mappings.
  std::vector<Mapping> take(std::span<const Mapping> part);
  /// The same for all mappings. Allocates nothing.
  std::vector<Mapping> unmap_all();

 private:
  const Mapping* find(Iova iova) const;
  const Mapping* search(Iova iova) const;
  util::Result<void> insert(const Mapping& mapping);
  void update_reachable();
  bool read_slow(const Mapping& mapping, Iova from, std::span<std::byte> out) const;
  bool write_slow(const Mapping& mapping, Iova to, std::span<const std::byte> in) const;
  void lose() {
    if (before_loss_) loss_work_ += before_loss_();
  }

  std::vector<Mapping> mappings_;
  /// The mappings that accesses use: mappings_, or none while the function is no bus master.
  std::span<const Mapping> reachable_;
  bool bus_master_ = true;
  DmaTap* tap_ = nullptr;
  std::vector<Mapping> tapped_;  ///< mappings_ without host addresses, while there is a tap
  DeviceThreads* threads_ = nullptr;
  std::function<std::int64_t()> before_loss_;
  std::int64_t loss_work_ = 0;
  std::uint64_t generation_ = 1;
};

}  // namespace softhca::pcie
