// Memory that may be registered.
#include "uverbs/pinning.h"

#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

class Pinning : public testing::Test {
 protected:
  ~Pinning() override { ::munmap(area_, 2 * kPage); }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(area_); }
  void protect(int how) { ASSERT_EQ(::mprotect(area_, 2 * kPage, how), 0); }

  const OwnMemory memory_;
  std::byte* const area_ = static_cast<std::byte*>(
      ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

/// pin(), and how older kernels are asked.
Errno pin_own(std::uint64_t address, std::uint64_t size, bool is_written) {
  return pin(OwnMemory(), address, size, is_written);
}
constexpr auto kWays = {pin_own, probe};

TEST_F(Pinning, AsksForTheRightsOfTheProgram) {
  for (const auto& how : kWays) {
    protect(PROT_READ);
    EXPECT_EQ(how(address(), kPage, false), 0);
    EXPECT_EQ(how(address(), kPage, true), EFAULT);
    protect(PROT_NONE);
    EXPECT_EQ(how(address(), kPage, false), EFAULT);
    protect(PROT_READ | PROT_WRITE);
    EXPECT_EQ(how(address(), 2 * kPage, true), 0);
  }
}

TEST_F(Pinning, FindsAHole) {
  ASSERT_EQ(::munmap(area_ + kPage, kPage), 0);
  for (const auto& how : kWays) {
    EXPECT_EQ(how(address() + 8, kPage, true), EFAULT);
    EXPECT_EQ(how(address() + 8, kPage - 8, true), 0);
  }
}

TEST_F(Pinning, ChangesNothing) {
  area_[0] = std::byte{7};
  EXPECT_EQ(probe(address(), 2 * kPage, true), 0);
  EXPECT_EQ(area_[0], std::byte{7});
}

TEST_F(Pinning, WritesArePinnedForAllRightsThatWrite) {
  for (const std::uint32_t access : {1U, 2U, 8U, 16U}) EXPECT_TRUE(is_writable(access)) << access;
  for (const std::uint32_t access : {0U, 4U, 64U}) EXPECT_FALSE(is_writable(access)) << access;
}

/// A request of ioctl(RDMA_VERBS_IOCTL), with three attributes.
struct ProbedCall {
  /// ib_uverbs_ioctl_hdr.
  struct Header {
    std::uint16_t length = sizeof(Header) + 3 * sizeof(ib_uverbs_attr);
    std::uint16_t object = 0, method = 0, attributes = 3;
    std::uint64_t reserved1 = 0;
    std::uint32_t driver = RDMA_DRIVER_MLX5, reserved2 = 0;
  };
  Header header;
  std::array<ib_uverbs_attr, 3> attributes{};

  ProbedCall(unsigned object, unsigned method) {
    header.object = static_cast<std::uint16_t>(object);
    header.method = static_cast<std::uint16_t>(method);
  }
  void set(std::size_t place, unsigned id, std::size_t length, std::uint64_t data) {
    attributes[place].attr_id = static_cast<std::uint16_t>(id);
    attributes[place].len = static_cast<std::uint16_t>(length);
    attributes[place].data = data;
  }
  /// The call as one block of bytes.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(header.length);
    std::memcpy(all.data(), &header, sizeof header);
    std::memcpy(all.data() + sizeof header, attributes.data(), sizeof attributes);
    return all;
  }
};

std::optional<std::uint32_t> no_region(std::uint32_t /*handle*/) {
  ADD_FAILURE() << "the request names no region";
  return std::nullopt;
}

std::vector<std::byte> umem_registration(std::uint64_t address, std::uint64_t size) {
  ProbedCall call(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
  call.set(0, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, 8, address);
  call.set(1, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, 8, size);
  call.set(2, MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, 4, 1);
  return call.bytes();
}

TEST_F(Pinning, APinningAheadIsTheAnswerWhileItLives) {
  const auto bytes = umem_registration(address(), 2 * kPage);
  protect(PROT_READ);
  {
    const PinnedAhead ahead(memory_, reinterpret_cast<std::uint64_t>(bytes.data()), no_region);
    protect(PROT_READ | PROT_WRITE);
    EXPECT_EQ(pin(memory_, address(), 2 * kPage, true), EFAULT);
    EXPECT_EQ(pin(memory_, address(), kPage, true), 0) << "other memory";
  }
  EXPECT_EQ(pin(memory_, address(), 2 * kPage, true), 0);
}

std::vector<std::byte> region_registration(const ib_uverbs_reg_mr& in) {
  ProbedCall call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
  call.set(0, UVERBS_ATTR_WRITE_CMD, 4, IB_USER_VERBS_CMD_REG_MR);
  call.set(1, UVERBS_ATTR_CORE_IN, sizeof in, reinterpret_cast<std::uint64_t>(&in));
  call.set(2, UVERBS_ATTR_CORE_OUT, 0, 0);
  return call.bytes();
}

// ibv_reg_mr() of gigabytes takes seconds, for which no other call may wait.
TEST_F(Pinning, ARegionIsPinnedAheadUnlessItIsOnDemand) {
  constexpr std::uint32_t kLocalWrite = 1, kOnDemand = 64;
  ib_uverbs_reg_mr in{};
  in.start = in.hca_va = address();
  in.length = 2 * kPage;
  for (const bool on_demand : {false, true}) {
    in.access_flags = kLocalWrite | (on_demand ? kOnDemand : 0);
    const auto bytes = region_registration(in);
    protect(PROT_READ);
    const PinnedAhead ahead(memory_, reinterpret_cast<std::uint64_t>(bytes.data()), no_region);
    protect(PROT_READ | PROT_WRITE);
    EXPECT_EQ(pin(memory_, address(), 2 * kPage, true), on_demand ? 0 : EFAULT);
  }
}

// ibv_rereg_mr() with IBV_REREG_MR_CHANGE_TRANSLATION alone.
TEST_F(Pinning, ARegionThatMovesIsPinnedAheadForTheAccessThatItHas) {
  constexpr std::uint32_t kLocalWrite = 1, kOnDemand = 64, kHandle = 5;
  ib_uverbs_rereg_mr in{};
  in.mr_handle = kHandle;
  in.flags = 1;  // IB_MR_REREG_TRANS
  in.start = in.hca_va = address();
  in.length = 2 * kPage;
  ProbedCall call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
  call.set(0, UVERBS_ATTR_WRITE_CMD, 4, IB_USER_VERBS_CMD_REREG_MR);
  call.set(1, UVERBS_ATTR_CORE_IN, sizeof in, reinterpret_cast<std::uint64_t>(&in));
  call.set(2, UVERBS_ATTR_CORE_OUT, 0, 0);
  const auto bytes = call.bytes();
  const auto pin_moved = [&](std::optional<std::uint32_t> access) {
    protect(PROT_READ);
    const PinnedAhead ahead(memory_, reinterpret_cast<std::uint64_t>(bytes.data()),
                            [&](std::uint32_t handle) {
                              EXPECT_EQ(handle, kHandle);
                              return access;
                            });
    protect(PROT_READ | PROT_WRITE);
    return pin(memory_, address(), 2 * kPage, true);
  };
  EXPECT_EQ(pin_moved(kLocalWrite), EFAULT);
  EXPECT_EQ(pin_moved(0), 0);
  EXPECT_EQ(pin_moved(kLocalWrite | kOnDemand), 0);
  EXPECT_EQ(pin_moved(std::nullopt), 0);
}

/// A page of a device file lies at `address`.
class WithDevicePage : public OwnMemory {
 public:
  explicit WithDevicePage(std::uint64_t address) : address_(address) {}
  bool has_device_page(std::uint64_t address, std::uint64_t size) const override {
    return address <= address_ && address_ - address < size;
  }

 private:
  std::uint64_t address_;
};

// ib_umem_get: what mmap() of a device file gives is mapped as the device's (VM_PFNMAP).
TEST_F(Pinning, ADevicesPageIsRefused) {
  const WithDevicePage memory(address() + kPage);
  EXPECT_EQ(pin(memory, address(), kPage, true), 0);
  for (const bool is_written : {false, true}) {
    EXPECT_EQ(pin(memory, address(), 2 * kPage, is_written), EFAULT);
  }
  const auto bytes = umem_registration(address(), 2 * kPage);
  const PinnedAhead ahead(memory, reinterpret_cast<std::uint64_t>(bytes.data()), no_region);
  EXPECT_EQ(pin(memory_, address(), 2 * kPage, true), EFAULT);
}

TEST_F(Pinning, PagesThatAreToBePrefetchedComeAhead) {
  const ib_uverbs_sge piece{.addr = address(), .length = 2 * kPage, .lkey = 0};
  ProbedCall call(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
  call.set(0, UVERBS_ATTR_ADVISE_MR_ADVICE, 4, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE);
  call.set(1, UVERBS_ATTR_ADVISE_MR_SGE_LIST, sizeof piece,
           reinterpret_cast<std::uint64_t>(&piece));
  const auto bytes = call.bytes();
  std::array<unsigned char, 2> there{};
  ASSERT_EQ(::mincore(area_, 2 * kPage, there.data()), 0);
  ASSERT_EQ(there[0] | there[1], 0);
  const PinnedAhead ahead(memory_, reinterpret_cast<std::uint64_t>(bytes.data()), no_region);
  ASSERT_EQ(::mincore(area_, 2 * kPage, there.data()), 0);
  EXPECT_EQ(there[0] & there[1] & 1, 1);
}

}  // namespace
}  // namespace softhca::uverbs
