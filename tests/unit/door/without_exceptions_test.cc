#include "door/process/without_exceptions.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace softhca::door {
namespace {

TEST(DoorWithoutExceptions, EachExceptionIsAnErrno) {
  EXPECT_EQ(without_exceptions([] { return 7; }), 7);
  EXPECT_EQ(without_exceptions([]() -> int { throw std::bad_alloc(); }), -ENOMEM);
  EXPECT_EQ(
      without_exceptions([]() -> int { throw std::system_error(EAGAIN, std::generic_category()); }),
      -EAGAIN);
  EXPECT_EQ(without_exceptions([]() -> int { throw std::runtime_error("other"); }), -EIO);
}

TEST(DoorWithoutExceptions, ASystemErrorWithoutANumberIsNoSuccess) {
  EXPECT_EQ(without_exceptions([]() -> int { throw std::system_error(std::error_code()); }), -EIO);
}

}  // namespace
}  // namespace softhca::door
