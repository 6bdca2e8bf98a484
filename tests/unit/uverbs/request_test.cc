// The header and attributes of ioctl(RDMA_VERBS_IOCTL), as the kernel accepts them (kernel
// interface 3.1, 3.2).
#include "uverbs/request.h"

#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "uverbs/method.h"

namespace softhca::uverbs {
namespace {

using RuleKind = AttributeRule::Kind;

/// A call in this process's memory, as libibverbs builds it.
struct CallInMemory {
  struct Header {
    std::uint16_t length = 24, object = 1, method = 2, count = 0;
    std::uint64_t reserved1 = 0;
    std::uint32_t driver = RDMA_DRIVER_MLX5, reserved2 = 0;
  };
  explicit CallInMemory(std::vector<ib_uverbs_attr> attributes) {
    header.count = static_cast<std::uint16_t>(attributes.size());
    header.length = static_cast<std::uint16_t>(24 + 16 * attributes.size());
    bytes.resize(header.length);
    std::ranges::copy(std::as_bytes(std::span(attributes)), bytes.begin() + 24);
    store();
  }
  void store() { std::memcpy(bytes.data(), &header, sizeof header); }
  Errno parse(Request& request) const {
    return request.parse(memory, reinterpret_cast<std::uint64_t>(bytes.data()));
  }
  ib_uverbs_attr attribute(std::size_t i) const {
    ib_uverbs_attr out;
    std::memcpy(&out, bytes.data() + 24 + 16 * i, sizeof out);
    return out;
  }
  OwnMemory memory;
  Header header;
  std::vector<std::byte> bytes;
};

ib_uverbs_attr attribute(std::uint16_t id, std::uint16_t length, std::uint64_t data,
                         std::uint16_t flags = UVERBS_ATTR_F_MANDATORY) {
  ib_uverbs_attr out{};
  out.attr_id = id;
  out.len = length;
  out.flags = flags;
  out.data = data;
  return out;
}

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uint64_t>(at); }

TEST(UverbsRequest, LengthAndDriverMustBeThoseOfTheCall) {
  Request request;
  CallInMemory call({attribute(1, 4, 5)});
  EXPECT_EQ(call.parse(request), 0);
  call.header.length = 24;
  call.store();
  EXPECT_EQ(call.parse(request), EINVAL);
  call.header.length = 40;
  call.header.driver = 0;
  call.store();
  EXPECT_EQ(call.parse(request), EINVAL);
  call.header.driver = RDMA_DRIVER_MLX5;
  call.header.reserved1 = 1;
  call.store();
  EXPECT_EQ(call.parse(request), EPROTONOSUPPORT);
}

TEST(UverbsRequest, MemoryThatIsNotThereIsEfault) {
  Request request;
  const OwnMemory memory;
  EXPECT_EQ(request.parse(memory, 8), EFAULT);
  CallInMemory call({attribute(1, 16, 8), attribute(2, 16, 8)});
  ASSERT_EQ(call.parse(request), 0);
  std::array<std::byte, 16> bytes;
  EXPECT_EQ(request.copy_in(1, bytes), EFAULT);
  EXPECT_EQ(request.put_bytes(2, bytes), EFAULT);
}

TEST(UverbsRequest, AnAttributeMayStandOnce) {
  Request request;
  EXPECT_EQ(CallInMemory({attribute(1, 4, 5), attribute(1, 4, 6)}).parse(request), EINVAL);
}

TEST(UverbsRequest, UnknownAttributesAreRefusedIfTheyAreMandatory) {
  static constexpr AttributeRule kRules[] = {{1, RuleKind::kIn, true, 4},
                                             {2, RuleKind::kOut, false, 8}};
  Request request;
  ASSERT_EQ(CallInMemory({attribute(1, 4, 5)}).parse(request), 0);
  EXPECT_EQ(request.check(kRules), 0);
  ASSERT_EQ(CallInMemory({attribute(1, 4, 5), attribute(7, 4, 5)}).parse(request), 0);
  EXPECT_EQ(request.check(kRules), EPROTONOSUPPORT);
  ASSERT_EQ(CallInMemory({attribute(1, 4, 5), attribute(7, 4, 5, 0)}).parse(request), 0);
  EXPECT_EQ(request.check(kRules), 0);
  ASSERT_EQ(CallInMemory({}).parse(request), 0);
  EXPECT_EQ(request.check(kRules), EINVAL) << "a mandatory one is missing";
  ASSERT_EQ(CallInMemory({attribute(1, 3, 5)}).parse(request), 0);
  EXPECT_EQ(request.check(kRules), EINVAL) << "too short";
  ASSERT_EQ(CallInMemory({attribute(1, 4, 5), attribute(2, 4, 0)}).parse(request), 0);
  EXPECT_EQ(request.check(kRules), EINVAL) << "no room for the answer";
}

// uverbs_process_attr, uverbs_get_flags32, _uverbs_get_const.
TEST(UverbsRequest, LongInputsAreRefusedUnlessTheRestIsZero) {
  static constexpr AttributeRule kRules[] = {rules::value_in(1, 4, false),
                                             rules::const_in(2, 4, false), rules::flags_in(3),
                                             rules::struct_in(4, 16), rules::in(5, 4, false)};
  std::array<std::uint64_t, 3> known{1, 2, 0};
  const auto check = [&](ib_uverbs_attr one) {
    Request request;
    const CallInMemory call({one, attribute(4, 16, address_of(known.data()))});
    EXPECT_EQ(call.parse(request), 0);
    return request.check(kRules);
  };
  EXPECT_EQ(check(attribute(1, 4, 7)), 0);
  EXPECT_EQ(check(attribute(1, 8, 7)), EINVAL) << "a number of another size";
  EXPECT_EQ(check(attribute(2, 8, 7)), 0);
  EXPECT_EQ(check(attribute(2, 8, 1ull << 32 | 7)), EINVAL) << "too large for its type";
  EXPECT_EQ(check(attribute(2, 24, address_of(known.data()))), EINVAL);
  EXPECT_EQ(check(attribute(3, 4, 7)), 0);
  EXPECT_EQ(check(attribute(3, 8, 7)), 0);
  EXPECT_EQ(check(attribute(3, 8, 1ull << 63)), EINVAL) << "a flag that there is not";
  EXPECT_EQ(check(attribute(5, 24, address_of(known.data()))), 0) << "of any length";

  const auto check_struct = [&](std::uint16_t length, std::uint64_t at) {
    Request request;
    const CallInMemory call({attribute(4, length, at)});
    EXPECT_EQ(call.parse(request), 0);
    return request.check(kRules);
  };
  EXPECT_EQ(check_struct(24, address_of(known.data())), 0);
  known[2] = 1;
  EXPECT_EQ(check_struct(16, address_of(known.data())), 0);
  EXPECT_EQ(check_struct(24, address_of(known.data())), EOPNOTSUPP) << "of a later interface";
  EXPECT_EQ(check_struct(24, 8), EOPNOTSUPP) << "not mapped";
}

TEST(UverbsRequest, LongOutputsAreRefusedUnlessTheyAreOfAStructure) {
  static constexpr AttributeRule kRules[] = {rules::value_out(1, 4, false),
                                             rules::out(2, 4, false)};
  std::array<std::uint64_t, 2> room{};
  const auto check = [&](std::uint16_t id, std::uint16_t length) {
    Request request;
    const CallInMemory call({attribute(id, length, address_of(room.data()))});
    EXPECT_EQ(call.parse(request), 0);
    return request.check(kRules);
  };
  EXPECT_EQ(check(1, 4), 0);
  EXPECT_EQ(check(1, 8), EINVAL);
  EXPECT_EQ(check(2, 16), 0);
}

TEST(UverbsRequest, ShortInputsStandInTheAttributeItself) {
  const std::array<std::uint64_t, 3> far{1, 2, 3};
  Request request;
  CallInMemory call(
      {attribute(1, 4, 0x1122334455667788), attribute(2, 24, address_of(far.data()))});
  ASSERT_EQ(call.parse(request), 0);
  EXPECT_EQ(request.get<std::uint32_t>(1), 0x55667788u);
  EXPECT_EQ(request.get<std::uint64_t>(1), 0x55667788u) << "what is not there is 0";
  EXPECT_EQ((request.get<std::array<std::uint64_t, 3>>(2)), far);
  EXPECT_EQ(request.get<std::uint32_t>(9), 0u);
}

// "PTR_OUT longer than known: fill, zero the rest"; a shorter output is truncated.
TEST(UverbsRequest, OutputsFillTheRoomThatThereIs) {
  std::array<std::uint32_t, 4> room{9, 9, 9, 9};
  Request request;
  CallInMemory call({attribute(1, 12, address_of(room.data())), attribute(2, 0, 0)});
  ASSERT_EQ(call.parse(request), 0);
  EXPECT_EQ(request.put(1, std::uint32_t{5}), 0);
  EXPECT_EQ(room, (std::array<std::uint32_t, 4>{5, 0, 0, 9}));
  EXPECT_EQ(call.attribute(0).flags, UVERBS_ATTR_F_MANDATORY | UVERBS_ATTR_F_VALID_OUTPUT);
  const std::array<std::uint32_t, 4> more{1, 2, 3, 4};
  EXPECT_EQ(request.put(1, more), 0);
  EXPECT_EQ(room, (std::array<std::uint32_t, 4>{1, 2, 3, 9}));
  EXPECT_EQ(request.put_number(2, -3), 0);
  EXPECT_EQ(static_cast<std::int64_t>(call.attribute(1).data), -3);
  EXPECT_EQ(request.put(9, 1), 0) << "the call has no such output";
}

}  // namespace
}  // namespace softhca::uverbs
