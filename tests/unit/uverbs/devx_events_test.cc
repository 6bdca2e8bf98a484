// Event subscriptions of a program (DevX; kernel interface 4.13).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>

#include "spec/connectx/eq.h"
#include "uverbs/devx_program.h"

namespace softhca::uverbs {
namespace {

namespace spec = softhca::spec::connectx;
using Type = spec::event_type;

class UverbsDevxEvents : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(program_.reopen(true), 0);
    umem_ = program_.reg_umem(program_.memory(), 4 * kPage);
    const auto page = program_.uar();
    cq_ = program_.create(program_.cq_command(umem_.id, 2 * kPage, page));
    ASSERT_EQ(cq_.wrong, 0);
  }
  std::uint32_t cqn() const {
    return util::View<spec::create_cq_out>(cq_.out).get(spec::create_cq_out::cqn);
  }
  int channel(std::uint32_t flags) {
    Call call(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC);
    EXPECT_EQ(call.number(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, 0)
                  .in(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, flags)
                  .on(program_.context()),
              0);
    return static_cast<int>(call.made(0));
  }
  Call subscription(int fd, std::uint16_t type, bool of_cq) {
    Call call(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT);
    call.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, static_cast<std::uint64_t>(fd))
        .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, type);
    if (of_cq) call.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, cq_.handle);
    return call;
  }
  Errno subscribe(int fd, std::uint16_t type, bool of_cq, std::uint64_t cookie) {
    return subscription(fd, type, of_cq)
        .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, cookie)
        .on(program_.context());
  }
  static driver::connectx::Event completion_of(std::uint32_t cqn) {
    driver::connectx::Event event;
    event.type = Type::COMPLETION;
    using Data = spec::event_data_completion;
    util::MutableView<Data>(event.data).set(Data::cqn, cqn);
    return event;
  }
  void happen(std::uint32_t cqn) {
    program_.device().subscriptions().handle_event(completion_of(cqn));
    program_.context().flush_events();
  }

  DevxProgram program_;
  DevxProgram::Umem umem_;
  DevxProgram::Answer cq_;
};

TEST_F(UverbsDevxEvents, ARecordIsTheCookieAndTheEntryOfTheQueue) {
  const int fd = channel(0);
  ASSERT_EQ(subscribe(fd, 0, true, 0x1234), 0);
  happen(cqn() + 1);
  happen(cqn());
  happen(cqn());
  for (int i = 0; i != 2; ++i) {
    std::array<std::byte, 256> record{};
    ASSERT_EQ(::read(fd, record.data(), record.size()), 8 + 64) << "one record to a read";
    std::uint64_t cookie = 0;
    std::memcpy(&cookie, record.data(), sizeof cookie);
    EXPECT_EQ(cookie, 0x1234u);
    const util::View<spec::eqe> eqe{std::span(record).subspan(8)};
    EXPECT_EQ(eqe.get(spec::eqe::event_type), 0u);
    const util::View<spec::event_data_completion> data(eqe.get(spec::eqe::event_data));
    EXPECT_EQ(data.get(spec::event_data_completion::cqn), cqn());
  }
  ::close(fd);
}

TEST_F(UverbsDevxEvents, WithoutDataTheCookieIsThereOnceUntilItIsRead) {
  const int fd = channel(MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA);
  ASSERT_EQ(subscribe(fd, 0, true, 77), 0);
  ASSERT_EQ(subscribe(fd, 4, true, 88), 0);
  for (int i = 0; i != 40; ++i) happen(cqn());
  driver::connectx::Event error;
  error.type = Type::CQ_ERROR;
  using Data = spec::event_data_cq_error;
  util::MutableView<Data>(error.data).set(Data::cqn, cqn());
  program_.device().subscriptions().handle_event(error);
  for (const std::uint64_t expected : {77, 88}) {
    std::array<std::uint64_t, 4> cookie{};
    ASSERT_EQ(::read(fd, cookie.data(), sizeof cookie), 8);
    EXPECT_EQ(cookie[0], expected);
  }
  ::close(fd);
}

TEST_F(UverbsDevxEvents, TwoSubscriptionsOfOneCookieAreDistinguished) {
  const int fd = channel(MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA);
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  ASSERT_EQ(subscribe(fd, 0, true, 77), 0);
  ASSERT_EQ(subscribe(fd, 0, true, 77), 0);
  happen(cqn());
  happen(cqn());
  for (int i = 0; i != 2; ++i) {
    std::array<std::uint64_t, 4> cookie{};
    ASSERT_EQ(::read(fd, cookie.data(), sizeof cookie), 8);
    EXPECT_EQ(cookie[0], 77u);
    if (i == 0) happen(cqn());  // the first one's event, already read, occurs again
  }
  pollfd look{.fd = fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&look, 1, 0), 1);
  std::uint64_t cookie = 0;
  EXPECT_EQ(::read(fd, &cookie, sizeof cookie), 8);
  EXPECT_EQ(::poll(&look, 1, 0), 0);
  ::close(fd);
}

// As in the kernel's release(): closing a channel ends its subscriptions.
TEST_F(UverbsDevxEvents, AChannelThatIsClosedIsGone) {
  const int fd = channel(0);
  ASSERT_EQ(subscribe(fd, 0, true, 5), 0);
  const int copy = ::dup(fd);
  ::close(fd);
  program_.context().drop_closed();
  happen(cqn());
  pollfd look{.fd = copy, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&look, 1, 0), 1) << "there is a copy of it";
  EXPECT_EQ(subscribe(copy, 0, true, 6), 0);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  ::close(copy);
  const auto before = open_files();
  program_.context().drop_closed();
  EXPECT_EQ(open_files(), before - 1) << "our end of it";
  happen(cqn());
}

TEST_F(UverbsDevxEvents, AnEventfdCountsThem) {
  const int fd = channel(0);
  const int counter = ::eventfd(0, EFD_NONBLOCK);
  EXPECT_EQ(subscription(fd, 0, true)
                .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, fd)
                .on(program_.context()),
            EINVAL)
      << "a pipe is none";
  EXPECT_EQ(subscription(fd, 0, true)
                .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, 9999)
                .on(program_.context()),
            EBADF);
  ASSERT_EQ(subscription(fd, 0, true)
                .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, counter)
                .on(program_.context()),
            0);
  happen(cqn());
  happen(cqn());
  std::uint64_t count = 0;
  EXPECT_EQ(::read(counter, &count, sizeof count), 8);
  EXPECT_EQ(count, 2u);
  ::close(counter);
  ::close(fd);
}

// eventfd_signal of Linux. The test would wait forever in a write that blocks.
TEST_F(UverbsDevxEvents, AFullEventfdStaysFullAndStopsNoDevice) {
  constexpr std::uint64_t kFull = UINT64_MAX - 1;
  const int fd = channel(0);
  const int counter = ::eventfd(0, EFD_CLOEXEC);
  ASSERT_EQ(subscription(fd, 0, true)
                .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, counter)
                .on(program_.context()),
            0);
  ASSERT_EQ(::write(counter, &kFull, sizeof kFull), 8);
  happen(cqn());
  EXPECT_EQ(::fcntl(counter, F_GETFL) & O_NONBLOCK, 0) << "the program's flags are its own";
  std::uint64_t count = 0;
  ASSERT_EQ(::read(counter, &count, sizeof count), 8);
  EXPECT_EQ(count, kFull);
  happen(cqn());
  ASSERT_EQ(::read(counter, &count, sizeof count), 8);
  EXPECT_EQ(count, 1u);
  ::close(counter);
  ::close(fd);
}

TEST_F(UverbsDevxEvents, ObjectsHaveTheirEventsAndTheDeviceHasIts) {
  const int fd = channel(0);
  constexpr std::uint16_t kCompletion = 0, kPort = 9, kPageRequest = 11;
  EXPECT_EQ(subscribe(fd, kPort, true, 1), EINVAL);
  EXPECT_EQ(subscribe(fd, kCompletion, false, 1), EINVAL);
  EXPECT_EQ(subscribe(fd, kPageRequest, false, 1), EINVAL) << "the kernel's";
  EXPECT_EQ(subscribe(fd, kPort + 256, false, 1), EINVAL);
  EXPECT_EQ(subscribe(fd, kPort, false, 1), 0);
  EXPECT_EQ(subscribe(0, kPort, false, 1), EBADF);
  ::close(fd);
}

TEST_F(UverbsDevxEvents, AnObjectThatIsGoneHasNoMore) {
  const int fd = channel(0);
  ASSERT_EQ(subscribe(fd, 0, true, 5), 0);
  const auto number = cqn();
  ASSERT_EQ(program_.destroy(cq_.handle), 0);
  happen(number);
  pollfd look{.fd = fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&look, 1, 0), 0);
  ::close(fd);
}

}  // namespace
}  // namespace softhca::uverbs
