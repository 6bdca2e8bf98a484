// XRC domains named by files, and targets that several contexts have open (Linux: uverbs_cmd.c
// ib_uverbs_open_xrcd, verbs.c ib_open_qp).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "os/unique_fd.h"
#include "spec/connectx/qp.h"
#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

namespace spec = softhca::spec::connectx;

constexpr std::uint32_t kAnonymous = UINT32_MAX;

class UverbsXrcTargets : public testing::Test {
 protected:
  struct Made {
    Errno wrong = 0;
    std::uint32_t handle = 0;
    std::uint32_t qpn = 0;
  };

  Made open_xrcd(Context& context, std::uint32_t fd, std::uint32_t flags) {
    Made made;
    ib_uverbs_open_xrcd in{};
    in.fd = fd;
    in.oflags = flags;
    made.wrong = write_command(context, IB_USER_VERBS_CMD_OPEN_XRCD, in, made.handle);
    return made;
  }
  static Errno close_xrcd(Context& context, std::uint32_t handle) {
    return Call(UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY)
        .number(UVERBS_ATTR_DESTROY_XRCD_HANDLE, handle)
        .on(context);
  }
  Made create_target(Context& context, std::uint32_t xrcd, std::uint32_t flags = 0) {
    Made made;
    ib_uverbs_qp_cap cap{};
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, xrcd)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{1})
        .in(UVERBS_ATTR_CREATE_QP_CAP, cap)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{IB_UVERBS_QPT_XRC_TGT})
        .in(UVERBS_ATTR_CREATE_QP_FLAGS, flags)
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, cap)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, made.qpn);
    made.wrong = call.on(context);
    made.handle = call.made(0);
    return made;
  }
  static Made open_qp(Context& context, std::uint32_t xrcd, std::uint32_t qpn,
                      std::uint8_t type = IB_UVERBS_QPT_XRC_TGT) {
    ib_uverbs_open_qp in{};
    in.user_handle = 2;
    in.pd_handle = xrcd;
    in.qpn = qpn;
    in.qp_type = type;
    ib_uverbs_create_qp_resp out{};
    Made made;
    made.wrong = write_command(context, IB_USER_VERBS_CMD_OPEN_QP, in, out);
    made.handle = out.qp_handle;
    made.qpn = out.qpn;
    return made;
  }
  struct Closed {
    Errno wrong;
    std::uint32_t events;
  };
  static Closed close_qp(Context& context, std::uint32_t handle) {
    ib_uverbs_destroy_qp_resp out{};
    const auto wrong = Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
                           .number(UVERBS_ATTR_DESTROY_QP_HANDLE, handle)
                           .out(UVERBS_ATTR_DESTROY_QP_RESP, out)
                           .on(context);
    return {wrong, out.events_reported};
  }
  static Errno to_init(Context& context, std::uint32_t qp) {
    QpAttributes in{};
    in.qp_handle = qp;
    in.attr_mask = 1 | 8 | 0x10 | 0x20;  // state, access, pkey, port
    in.qp_state = 1;
    in.port_num = 1;
    std::uint64_t nothing = 0;
    return write_command(context, IB_USER_VERBS_CMD_MODIFY_QP, in, nothing);
  }
  static unsigned state(Context& context, std::uint32_t qp) {
    ib_uverbs_query_qp in{};
    in.qp_handle = qp;
    ib_uverbs_query_qp_resp out{};
    EXPECT_EQ(write_command(context, IB_USER_VERBS_CMD_QUERY_QP, in, out), 0);
    return out.qp_state;
  }
  bool is_in_device(std::uint32_t qpn) {
    driver::connectx::Request<spec::query_qp_in> in(spec::command_opcode::QUERY_QP);
    in.set(spec::query_qp_in::qpn, qpn);
    return program_.device().commands().execute<spec::query_qp_out>(in).has_value();
  }
  /// A file that names no domain yet.
  static os::UniqueFd new_file() {
    std::string name = testing::TempDir() + "softhca-xrcXXXXXX";
    os::UniqueFd file(::mkstemp(name.data()));
    ::unlink(name.c_str());
    return file;
  }
  static std::uint32_t number(const os::UniqueFd& file) {
    return static_cast<std::uint32_t>(file.get());
  }

  Program program_;
  std::unique_ptr<Context> other_ = program_.open();
};

// mlx5_ib creates domains and their SRQs as the kernel's own.
TEST_F(UverbsXrcTargets, AProgramWithDevxHasSrqsInItsDomains) {
  ASSERT_EQ(program_.reopen(true), 0);
  auto& context = program_.context();
  const auto domain = open_xrcd(context, kAnonymous, 0);
  const auto cq = program_.create_cq(program_.uar());
  std::uint32_t srq = 0;
  EXPECT_EQ(program_.create_srq(program_.pd(), {.domain = domain.handle, .cq = cq}, srq), 0);
  EXPECT_EQ(program_.limit_srq(srq, 1), 0);
}

TEST_F(UverbsXrcTargets, AFileThatNamesNoDomainNeedsCreat) {
  const auto file = new_file();
  auto& context = program_.context();
  EXPECT_EQ(open_xrcd(context, number(file), 0).wrong, EAGAIN);
  EXPECT_EQ(open_xrcd(context, number(file), O_CREAT | O_EXCL).wrong, 0);
  EXPECT_EQ(open_xrcd(*other_, number(file), 0).wrong, 0);
  EXPECT_EQ(open_xrcd(*other_, number(file), O_CREAT | O_EXCL).wrong, EINVAL) << "there is one";
  EXPECT_EQ(open_xrcd(context, 1000000, O_CREAT).wrong, EBADF);
  EXPECT_EQ(open_xrcd(context, kAnonymous, 0).wrong, 0);
}

TEST_F(UverbsXrcTargets, TheNameOfADomainGoesWithItsLastUser) {
  const auto file = new_file();
  const auto first = open_xrcd(program_.context(), number(file), O_CREAT);
  const auto second = open_xrcd(*other_, number(file), O_CREAT);
  EXPECT_EQ(close_xrcd(program_.context(), first.handle), 0);
  EXPECT_EQ(open_xrcd(program_.context(), number(file), 0).wrong, 0);
  program_.close();
  EXPECT_EQ(close_xrcd(*other_, second.handle), 0);
  EXPECT_EQ(open_xrcd(*other_, number(file), 0).wrong, EAGAIN);
}

// The kernel holds the inode (igrab), so no other file gets its number while the domain exists.
TEST_F(UverbsXrcTargets, AFileOfADomainIsKeptSoThatNoOtherGetsItsInode) {
  auto file = new_file();
  struct stat its, other;
  ASSERT_EQ(::fstat(file.get(), &its), 0);
  const auto domain = open_xrcd(program_.context(), number(file), O_CREAT);
  ASSERT_EQ(domain.wrong, 0);
  file.reset();
  const auto is_kept = [&] {
    for (int fd = 0; fd != 1024; ++fd) {
      if (::fstat(fd, &other) == 0 && other.st_dev == its.st_dev && other.st_ino == its.st_ino) {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(is_kept());
  EXPECT_EQ(close_xrcd(program_.context(), domain.handle), 0);
  EXPECT_FALSE(is_kept());
}

TEST_F(UverbsXrcTargets, ATargetIsOpenedByItsNumberInItsDomainAlone) {
  const auto file = new_file();
  const auto domain = open_xrcd(program_.context(), number(file), O_CREAT);
  const auto same = open_xrcd(*other_, number(file), 0);
  const auto another = open_xrcd(*other_, kAnonymous, 0);
  const auto target = create_target(program_.context(), domain.handle);
  ASSERT_EQ(target.wrong, 0);
  const auto opened = open_qp(*other_, same.handle, target.qpn);
  EXPECT_EQ(opened.wrong, 0);
  EXPECT_EQ(opened.qpn, target.qpn);
  EXPECT_EQ(open_qp(*other_, another.handle, target.qpn).wrong, EINVAL);
  EXPECT_EQ(open_qp(*other_, same.handle, target.qpn + 1).wrong, EINVAL);
  EXPECT_EQ(open_qp(*other_, same.handle, target.qpn, IB_UVERBS_QPT_XRC_INI).wrong, EINVAL);
  EXPECT_EQ(open_qp(*other_, same.handle + 1000, target.qpn).wrong, ENOENT);
  EXPECT_EQ(close_xrcd(*other_, same.handle), EBUSY) << "the target is open in it";
}

TEST_F(UverbsXrcTargets, ATargetStaysUntilAllHaveClosedIt) {
  const auto file = new_file();
  const auto domain = open_xrcd(program_.context(), number(file), O_CREAT);
  const auto target = create_target(program_.context(), domain.handle);
  const auto same = open_xrcd(*other_, number(file), 0);
  const auto opened = open_qp(*other_, same.handle, target.qpn);
  program_.close();
  EXPECT_TRUE(is_in_device(target.qpn));
  const auto again = open_qp(*other_, same.handle, target.qpn);
  EXPECT_EQ(again.wrong, 0) << "it is in its domain still";
  EXPECT_EQ(close_qp(*other_, opened.handle).wrong, 0);
  EXPECT_TRUE(is_in_device(target.qpn));
  EXPECT_EQ(close_qp(*other_, again.handle).wrong, 0);
  EXPECT_FALSE(is_in_device(target.qpn));
  EXPECT_EQ(open_qp(*other_, same.handle, target.qpn).wrong, EINVAL);
  EXPECT_EQ(close_xrcd(*other_, same.handle), 0);
}

TEST_F(UverbsXrcTargets, EachContextThatOpenedATargetMayChangeIt) {
  const auto file = new_file();
  const auto domain = open_xrcd(program_.context(), number(file), O_CREAT);
  const auto target = create_target(program_.context(), domain.handle);
  const auto same = open_xrcd(*other_, number(file), 0);
  const auto opened = open_qp(*other_, same.handle, target.qpn);
  EXPECT_EQ(to_init(*other_, opened.handle), 0);
  EXPECT_EQ(state(program_.context(), target.handle), 1u);
  EXPECT_EQ(close_qp(program_.context(), target.handle).wrong, 0);
  EXPECT_EQ(state(*other_, opened.handle), 1u);
}

TEST_F(UverbsXrcTargets, AllContextsThatOpenedATargetGetItsEvents) {
  const auto listen = [](Context& context) {
    Call alloc(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
    EXPECT_EQ(alloc.number(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0).on(context), 0);
    return os::UniqueFd(static_cast<int>(alloc.made(0)));
  };
  const auto first_events = listen(program_.context());
  const auto other_events = listen(*other_);
  const auto file = new_file();
  const auto domain = open_xrcd(program_.context(), number(file), O_CREAT);
  const auto target = create_target(program_.context(), domain.handle);
  const auto same = open_xrcd(*other_, number(file), 0);
  const auto opened = open_qp(*other_, same.handle, target.qpn);
  struct stat status{};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  const auto shared = program_.device().find_xrc_domain({status.st_dev, status.st_ino});
  shared->find_target(target.qpn)->handle_event(spec::event_type::COMMUNICATION_ESTABLISHED);
  const auto read = [](const os::UniqueFd& events) {
    ib_uverbs_async_event_desc event{};
    EXPECT_EQ(::fcntl(events.get(), F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(::read(events.get(), &event, sizeof event), ssize_t{sizeof event});
    return event;
  };
  EXPECT_EQ(read(first_events).element, 1u);
  EXPECT_EQ(read(other_events).element, 2u);
  EXPECT_EQ(close_qp(*other_, opened.handle).events, 1u);
  EXPECT_EQ(close_qp(program_.context(), target.handle).events, 1u);
}

// Linux: uverbs_cmd.c modify_qp().
TEST_F(UverbsXrcTargets, AStateThatIsNoneIsRefused) {
  const auto domain = open_xrcd(program_.context(), kAnonymous, 0);
  const auto target = create_target(program_.context(), domain.handle);
  std::uint64_t nothing = 0;
  QpAttributes in{};
  in.qp_handle = target.handle;
  in.attr_mask = 2;
  in.cur_qp_state = 7;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_MODIFY_QP, in, nothing), EINVAL);
  in.attr_mask = 1;
  in.qp_state = 7;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_MODIFY_QP, in, nothing), EINVAL);
}

// check_creation_flags: these flags are for datagram and raw packet QPs.
TEST_F(UverbsXrcTargets, TakesNoFlagsOfOtherQps) {
  const auto domain = open_xrcd(program_.context(), kAnonymous, 0);
  for (const std::uint32_t flag : {std::uint32_t{IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK},
                                   std::uint32_t{IB_UVERBS_QP_CREATE_CVLAN_STRIPPING}, 1u << 20}) {
    EXPECT_EQ(create_target(program_.context(), domain.handle, flag).wrong, EINVAL) << flag;
  }
  EXPECT_EQ(create_target(program_.context(), domain.handle).wrong, 0);
}

}  // namespace
}  // namespace softhca::uverbs
