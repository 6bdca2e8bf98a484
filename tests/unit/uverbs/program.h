// A program with its own device in this process, and one open device file. It makes calls as
// libibverbs does.
#pragma once

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "connectx/device.h"
#include "driver/in_process_host.h"
#include "fabric/switch.h"
#include "uverbs/context.h"
#include "uverbs/locked_memory.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

/// Bits of attr_mask and values of qp_state, as a program passes them to MODIFY_QP (ib_verbs.h).
inline constexpr std::uint32_t kStateBit = 1, kPortBit = 0x20;
inline constexpr std::uint8_t kInitState = 1, kRtrState = 2, kRtsState = 3, kErrorState = 6;

/// One call: its attributes, and where its outputs go.
class Call {
 public:
  Call(std::uint16_t object, std::uint16_t method) {
    header_.object = object;
    header_.method = method;
  }
  template <class T>
  Call& in(std::uint16_t id, const T& value) {
    if (sizeof value > 8) return add(id, sizeof value, keep(&value, sizeof value));
    std::uint64_t data = 0;
    std::memcpy(&data, &value, std::min<std::size_t>(sizeof value, 8));
    return add(id, sizeof value, data);
  }
  /// The output buffer must outlive the call.
  template <class T>
  Call& out(std::uint16_t id, T& value) {
    return add(id, sizeof value, reinterpret_cast<std::uint64_t>(&value));
  }
  Call& number(std::uint16_t id, std::uint64_t number) { return add(id, 0, number); }
  Call& add(std::uint16_t id, std::uint16_t size, std::uint64_t data) {
    ib_uverbs_attr one{};
    one.attr_id = id;
    one.len = size;
    one.flags = UVERBS_ATTR_F_MANDATORY;
    one.data = data;
    attributes_.push_back(one);
    return *this;
  }
  Errno on(Context& context) {
    header_.count = static_cast<std::uint16_t>(attributes_.size());
    header_.length = static_cast<std::uint16_t>(sizeof header_ + 16 * attributes_.size());
    bytes_.resize(header_.length);
    std::memcpy(bytes_.data(), &header_, sizeof header_);
    std::ranges::copy(std::as_bytes(std::span(attributes_)), bytes_.begin() + sizeof header_);
    return context.serve(reinterpret_cast<std::uint64_t>(bytes_.data()));
  }
  /// The handle of the new object.
  std::uint32_t made(std::size_t attribute) const {
    ib_uverbs_attr one;
    std::memcpy(&one, bytes_.data() + sizeof header_ + 16 * attribute, sizeof one);
    return static_cast<std::uint32_t>(one.data);
  }

 private:
  struct Header {
    std::uint16_t length = 0, object = 0, method = 0, count = 0;
    std::uint64_t reserved1 = 0;
    std::uint32_t driver = RDMA_DRIVER_MLX5, reserved2 = 0;
  };
  std::uint64_t keep(const void* value, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(value);
    kept_.push_back(std::make_unique<std::vector<std::byte>>(bytes, bytes + size));
    return reinterpret_cast<std::uint64_t>(kept_.back()->data());
  }
  Header header_;
  std::vector<ib_uverbs_attr> attributes_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept_;
  std::vector<std::byte> bytes_;
};

/// A command in the form of write().
template <class In, class Out>
Errno write_command(Context& context, std::uint32_t number, const In& in, Out& out) {
  return Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
      .in(UVERBS_ATTR_WRITE_CMD, number)
      .in(UVERBS_ATTR_CORE_IN, in)
      .out(UVERBS_ATTR_CORE_OUT, out)
      .on(context);
}

/// Memory of this process, of which a test says how much may be locked.
class LimitedMemory final : public OwnMemory {
 public:
  LockedMemory* locked() const override { return &locked_; }
  LockedMemory::Limit limit{.bytes = UINT64_MAX, .binds = true};

 private:
  mutable LockedMemory locked_{LockedMemory::Beyond::kRefusal, [this] { return limit; }};
};

class Program {
 public:
  /// The memory that the device reaches: all of this process, or only memory().
  enum class Reach : std::uint8_t { kAll, kMemory };
  /// 64 pages of memory for queues.
  static constexpr std::size_t kMemory = 64 * 4096;
  explicit Program(Reach reach = Reach::kAll);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Context& context() { return *context_; }
  Device& device() { return *device_; }
  /// Opens the device again, and gets a context without DevX.
  std::unique_ptr<Context> open();
  /// Opens the device again. The file has no context yet.
  std::unique_ptr<Context> open_file();
  /// Makes that file the context(). `other` gets the previous one.
  void exchange(std::unique_ptr<Context>& other) { context_.swap(other); }
  /// The switch of the device.
  fabric::Switch& network() { return switch_; }
  /// Closes the device file and destroys everything made through it.
  void close() { context_.reset(); }

  /// GET_CONTEXT as libmlx5 sends it, with DevX if asked.
  static Errno get_context(Context& file, bool devx);
  /// Makes a new file with a context the context(): everything made through the old one goes.
  Errno reopen(bool devx);
  std::uint32_t pd();
  /// Registers [address, address + size).
  Errno reg_mr(std::uint32_t pd, std::uint64_t address, std::uint64_t size, std::uint32_t access,
               ib_uverbs_reg_mr_resp& out);
  Errno destroy_pd(std::uint32_t handle);
  Errno destroy_mr(std::uint32_t handle);
  /// Allocates a doorbell page and returns its number.
  std::uint32_t uar();
  /// A CQ of 63 entries with doorbells in page `uar`. It begins at memory(); its record is in the
  /// last page of memory().
  std::uint32_t create_cq(std::uint32_t uar);
  struct CqOptions {
    std::uint32_t entries = 63;
    std::uint64_t begin = 0, record = kMemory - 4096;     ///< offsets in memory()
    std::optional<std::uint64_t> address = std::nullopt;  ///< where it begins, instead of `begin`
    std::uint32_t flags = 0;
    std::uint16_t entry_size = 64;  ///< bytes
    /// Descriptors: a completion channel, and one for asynchronous events.
    std::optional<std::uint32_t> channel = std::nullopt, events = std::nullopt;
    std::uint32_t* last = nullptr;  ///< gets the index of the last entry
  };
  Errno create_cq(std::uint32_t uar, const CqOptions& options, std::uint32_t& handle);
  struct SrqOptions {
    std::uint32_t sges = 1, limit = 0;
    std::uint64_t record = kMemory - 2048;  ///< offset in memory()
    /// Handles, for an XRC SRQ.
    std::optional<std::uint32_t> domain = std::nullopt, cq = std::nullopt;
    std::uint32_t driver_flags = 0;   ///< MLX5_SRQ_FLAG_*
    std::uint32_t* number = nullptr;  ///< gets the number in the device
  };
  /// An SRQ of 15 WQEs from page 16 of memory() on.
  Errno create_srq(std::uint32_t pd, const SrqOptions& options, std::uint32_t& handle);
  /// ibv_modify_srq with a limit.
  Errno limit_srq(std::uint32_t srq, std::uint32_t limit);
  struct WqOptions {
    std::uint32_t entries = 16;
    std::uint64_t record = kMemory - 4096 + 64;  ///< offset in memory()
    std::uint32_t flags = 0;
    std::uint32_t driver_flags = 0;   ///< MLX5_WQ_FLAG_*
    std::uint32_t* number = nullptr;  ///< gets the number in the device
  };
  /// A WQ of entries of 16 bytes from page 8 of memory() on.
  Errno create_wq(std::uint32_t pd, std::uint32_t cq, const WqOptions& options,
                  std::uint32_t& handle);
  /// Clock of the device and its host. Only turns of the device take time.
  util::Time now{kBegin};
  static constexpr util::Duration kBegin = std::chrono::hours(1),
                                  kPerTurn = std::chrono::microseconds(10);
  /// Runs one turn of the device.
  void turn() { host_->progress(); }
  /// MTU of the interface that has the addresses, in bytes; 0: not known.
  unsigned interface_mtu = 0;
  /// False: no MAC address can be resolved.
  bool knows_macs = true;
  /// Memberships of QPs in multicast groups, as reported.
  std::vector<std::pair<driver::Gid, bool>> members;
  /// False: there is no memory for another membership.
  bool has_memory_for_members = true;
  /// The bytes stored into the device file, by offset.
  std::map<std::uint64_t, std::vector<std::byte>> stored;
  /// The memory that its objects have locked, and its limit.
  LockedMemory& locked() { return *own_.locked(); }
  void limit_locked(LockedMemory::Limit limit) { own_.limit = limit; }
  std::uint64_t memory() const { return reinterpret_cast<std::uint64_t>(memory_); }

 private:
  fabric::Switch switch_;
  std::unique_ptr<fabric::Port> port_;
  std::unique_ptr<connectx::Device> model_;
  std::unique_ptr<driver::InProcessHost> host_;
  std::unique_ptr<driver::connectx::Hca> hca_;
  std::unique_ptr<Device> device_;
  LimitedMemory own_;
  std::unique_ptr<Context> context_;
  std::byte* memory_;
};

}  // namespace softhca::uverbs
