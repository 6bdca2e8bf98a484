// The memory that a function reaches by DMA: IOVA (bus address) to host memory.
//
// A mapping either points to memory of this process (a guest's memory mapped by file descriptor, or
// the process's own), or stands for memory that only a peer can reach, which then reads and writes
// it for us (vfio-user DMA_READ and DMA_WRITE). Hot paths take a pointer from translate() and fall
// back to read() and write(), which serve both kinds.
//
// While the function is no bus master (PCIe 5.0 7.5.1.1.3) or sleeps nothing is reachable: every
// access fails, as it does where nothing is mapped. The host's mappings stay.
//
// Changed only by the loop that owns the function; a device's own threads may look up and access at
// the same time, if they are made known by set_threads(): they pause for every change.
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

/// What a mapping, or an access, may do with memory.
enum class DmaAccess : std::uint8_t { kRead = 1, kWrite = 2, kReadWrite = 3 };

/// Memory that a peer reads and writes for us.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  /// False if the peer refused or is gone; `out` is then undefined.
  virtual bool dma_read(Iova from, std::span<std::byte> out) = 0;
  virtual bool dma_write(Iova to, std::span<const std::byte> in) = 0;
};

/// Sees what a device reads and writes.
class DmaTap {
 public:
  virtual ~DmaTap() = default;
  /// `size` bytes at `iova` were read, or written.
  virtual void handle_dma(Iova iova, std::size_t size, DmaAccess access) = 0;
};

/// While one exists in a thread, that thread reaches memory of this process only; accesses to
/// memory behind a peer fail at once. For a device's own threads: the way to a peer belongs to the
/// loop.
class LocalMemoryOnly {
 public:
  LocalMemoryOnly();
  ~LocalMemoryOnly();
  LocalMemoryOnly(const LocalMemoryOnly&) = delete;
  LocalMemoryOnly& operator=(const LocalMemoryOnly&) = delete;

  /// In the calling thread.
  static bool active();
  /// True if an access of this thread has failed because of it since the last call.
  static bool take_refusal() { return std::exchange(refused_, false); }
  static void note_refusal() { refused_ = true; }

 private:
  static constinit inline thread_local bool refused_ = false;
};

/// Accesses to memory behind a peer: each is a message and its answer, so that whoever has a budget
/// lets them count for it.
class RemoteAccesses {
 public:
  static void add() { ++count_; }
  /// True if there were any in this thread since the last take().
  static bool any() { return count_ != 0; }
  /// How many.
  static std::uint64_t take() { return std::exchange(count_, 0); }
  /// The work (util::WorkBudget) of these: several system calls each, and two changes of thread.
  static std::int64_t take_work() { return static_cast<std::int64_t>(take()) * kWork; }

 private:
  static constexpr std::int64_t kWork = 6'000;
  static constinit inline thread_local std::uint64_t count_ = 0;
};

class DmaSpace {
 public:
  /// The device's own threads, which use translations; null: there are none.
  void set_threads(DeviceThreads* threads) { threads_ = threads; }
  /// From now on memory is reached by read() and write() alone, which tell `tap`, as if all of it
  /// were behind a peer: whoever keeps translations finds none. Null: as without. No thread of the
  /// device's own reaches memory then.
  void set_tap(DmaTap* tap);
  /// Called before memory goes out of reach: whoever holds a pointer into it, as a frame on its way
  /// does, takes now what it needs. The hook returns what that cost (see util::WorkBudget), and
  /// throws nothing.
  void set_before_loss(std::function<std::int64_t()> hook) { before_loss_ = std::move(hook); }
  /// What losses have cost since the last call.
  std::int64_t take_loss_work() { return std::exchange(loss_work_, 0); }

  /// Maps [iova, iova + size) to `host`. Fails on size 0, wrap-around, or overlap with another
  /// mapping. The memory must stay valid until it is unmapped.
  util::Result<void> map(Iova iova, std::uint64_t size, std::byte* host, DmaAccess access);
  /// The same for memory that only `memory` can reach.
  util::Result<void> map_remote(Iova iova, std::uint64_t size, RemoteMemory& memory,
                                DmaAccess access);
  /// Removes the mapping that begins at `iova` and has exactly `size` bytes; fails if there is
  /// none.
  util::Result<void> unmap(Iova iova, std::uint64_t size);
  /// True if a byte of [iova, iova + size) is mapped already.
  bool overlaps(Iova iova, std::uint64_t size) const;

  /// Bus Master Enable or the power state was written. True at first: a space without a function is
  /// always reachable.
  void set_bus_master(bool enabled);

  /// The host address of [iova, iova + size) if all of it lies in one local mapping that allows
  /// `access`; null otherwise. Valid until generation() changes.
  std::byte* translate(Iova iova, std::uint64_t size, DmaAccess access) const;

  /// The first part of [iova, iova + size), as long as one local mapping reaches: for copies that
  /// walk over several mappings. Empty if the first byte is not local memory that allows `access`.
  std::span<std::byte> translate_prefix(Iova iova, std::uint64_t size, DmaAccess access) const;

  /// One local mapping, for who accesses many addresses of it. Good as long as a pointer from
  /// translate().
  struct Window {
    Iova first = 0;
    std::uint64_t size = 0;  ///< bytes
    std::byte* host = nullptr;

    /// The host address of [iova, iova + length) if all of it lies in the window; else null.
    /// @pre length is not 0
    std::byte* find(Iova iova, std::uint64_t length) const {
      const auto offset = iova - first;  // a large number if iova is below
      return offset < size && length <= size - offset ? host + offset : nullptr;
    }
  };
  /// The whole of the local mapping that holds `iova` and allows `access`; empty if there is none.
  Window window(Iova iova, DmaAccess access) const;

  /// Reads across mappings of either kind. False if a part is unmapped or forbidden; `out` is then
  /// undefined.
  bool read(Iova from, std::span<std::byte> out) const;
  /// False if a part is unmapped or forbidden; bytes before that part may have been written.
  bool write(Iova to, std::span<const std::byte> in) const;

  /// Changes with every unmap, and when bus mastering is switched: a pointer from translate(), or
  /// its absence, is good as long as this is the same.
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
  /// Those of mappings() that end at `first` or above.
  std::span<const Mapping> mappings_from(Iova first) const;
  /// Removes `part` of mappings() at once, however many they are, and returns them.
  std::vector<Mapping> take(std::span<const Mapping> part);
  /// The same with all of them. Allocates nothing.
  std::vector<Mapping> unmap_all();

 private:
  const Mapping* find(Iova iova) const;
  const Mapping* search(Iova iova) const;
  util::Result<void> insert(const Mapping& mapping);
  void update_reachable();
  bool read_afar(const Mapping& mapping, Iova from, std::span<std::byte> out) const;
  bool write_afar(const Mapping& mapping, Iova to, std::span<const std::byte> in) const;
  void lose() {
    if (before_loss_) loss_work_ += before_loss_();
  }

  std::vector<Mapping> mappings_;
  /// What accesses see: mappings_, or nothing while the function is no bus master.
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
