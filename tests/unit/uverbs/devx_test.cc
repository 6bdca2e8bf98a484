// Raw commands of a program (DevX; kernel interface 4.13), with the kernel's errno.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "spec/connectx/hca.h"
#include "spec/connectx/resources.h"
#include "uverbs/devx_program.h"

namespace softhca::uverbs {
namespace {

namespace spec = softhca::spec::connectx;
using Op = spec::command_opcode;
template <class In>
using Command = driver::connectx::Request<In>;

/// Offset of a CQ's doorbell record in its UMEM.
constexpr std::uint64_t kRecord = 2 * kPage;
constexpr std::uint32_t kNotArmed = 0xffffffff;

class UverbsDevx : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(program_.reopen(true), 0); }
  Command<spec::query_cq_in> query_cq(std::uint32_t cqn) {
    Command<spec::query_cq_in> in(Op::QUERY_CQ);
    in.set(spec::query_cq_in::cqn, cqn);
    return in;
  }
  std::uint32_t cqn_of(const DevxProgram::Answer& made) {
    return util::View<spec::create_cq_out>(made.out).get(spec::create_cq_out::cqn);
  }
  std::uint32_t pdn_of(std::uint32_t pd) {
    std::uint32_t number = 0;
    EXPECT_EQ(Call(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
                  .number(MLX5_IB_ATTR_QUERY_PD_HANDLE, pd)
                  .out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, number)
                  .on(program_.context()),
              0);
    return number;
  }
  /// A memory key for all of `umem`.
  Command<spec::create_mkey_in> mkey_command(std::uint32_t pdn, std::uint32_t umem) {
    using In = spec::create_mkey_in;
    Command<In> in(Op::CREATE_MKEY);
    in.set(In::mkey_umem_id, umem);
    in.set(In::translations_octword_actual_size, 2);
    const auto context = in.sub(In::mkey_context);
    context.set(spec::mkey_context::access_mode, 1);
    context.set(spec::mkey_context::lr, 1);
    context.set(spec::mkey_context::pd, pdn);
    context.set(spec::mkey_context::qpn, 0xffffff);
    context.set(spec::mkey_context::len, 4 * kPage);
    context.set(spec::mkey_context::start_addr, program_.memory());
    context.set(spec::mkey_context::translations_octword_size, 2);
    context.set(spec::mkey_context::log_page_size, 12);
    return in;
  }

  DevxProgram program_;
};

TEST(UverbsDevxWithoutContext, AsksForCapabilitiesAlone) {
  DevxProgram program;
  using Caps = Command<spec::query_hca_cap_in>;
  const auto answer = program.other(Caps(Op::QUERY_HCA_CAP));
  EXPECT_EQ(answer.wrong, 0);
  EXPECT_TRUE(std::ranges::any_of(answer.out, [](auto byte) { return byte != std::byte{0}; }));
  EXPECT_EQ(program.other(Command<spec::nop_in>(Op::NOP)).wrong, EINVAL);
  EXPECT_EQ(program.create(Command<spec::alloc_pd_in>(Op::ALLOC_PD)).wrong, EINVAL);
  EXPECT_EQ(program.reg_umem(program.memory(), kPage).wrong, EINVAL);
}

TEST_F(UverbsDevx, GeneralCommandsMakeNothing) {
  EXPECT_EQ(program_.other(Command<spec::nop_in>(Op::NOP)).wrong, 0);
  EXPECT_EQ(program_.other(Command<spec::alloc_pd_in>(Op::ALLOC_PD)).wrong, EINVAL);
  EXPECT_EQ(program_.create(Command<spec::nop_in>(Op::NOP)).wrong, EINVAL);
}

TEST_F(UverbsDevx, TheStatusOfARefusedCommandIsReturned) {
  const auto page = program_.uar();
  const auto answer = program_.create(program_.cq_command(77, kRecord, page));
  EXPECT_EQ(answer.wrong, EREMOTEIO);
  EXPECT_EQ(answer.status(), static_cast<unsigned>(spec::command_status::BAD_RESOURCE));
  const auto unknown = program_.create(Command<spec::alloc_pd_in>(Op::CREATE_GENERAL_OBJECT));
  EXPECT_EQ(unknown.wrong, EREMOTEIO);
  EXPECT_NE(unknown.status(), 0u);
}

TEST_F(UverbsDevx, TheRecordOfACompletionQueueIsInItsMemory) {
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  ASSERT_EQ(umem.wrong, 0);
  const auto cq = program_.create(program_.cq_command(umem.id, kRecord, program_.uar()));
  ASSERT_EQ(cq.wrong, 0);
  auto* const arm = reinterpret_cast<std::uint32_t*>(program_.memory() + kRecord + 4);
  EXPECT_EQ(*arm, kNotArmed);
  *arm = 0;
  program_.device().records().scan();
  EXPECT_EQ(*arm, kNotArmed) << "the arm was taken";
  EXPECT_EQ(program_.destroy(cq.handle), 0);
  *arm = 0;
  program_.device().records().scan();
  EXPECT_EQ(*arm, 0u) << "the device ignores it now";
}

// MLX5_IB_METHOD_DEVX_OBJ_CREATE, _MODIFY, _QUERY: vhca_tunnel_id.
TEST_F(UverbsDevx, ObjectsAreNotOfAnotherFunction) {
  const auto lead_to = [](std::byte function, auto& command) {
    std::fill_n(command.all().begin() + 4, 2, function);
  };
  constexpr std::byte kOwn{0}, kOther{1};
  Command<spec::alloc_pd_in> alloc(Op::ALLOC_PD);
  lead_to(kOther, alloc);
  EXPECT_EQ(program_.create(alloc).wrong, EINVAL);
  lead_to(kOwn, alloc);
  EXPECT_EQ(program_.create(alloc).wrong, 0);
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  const auto cq = program_.create(program_.cq_command(umem.id, kRecord, program_.uar()));
  ASSERT_EQ(cq.wrong, 0);
  auto ask = query_cq(cqn_of(cq));
  lead_to(kOther, ask);
  EXPECT_EQ(program_.query(cq.handle, ask).wrong, EINVAL);
  lead_to(kOwn, ask);
  EXPECT_EQ(program_.query(cq.handle, ask).wrong, 0);
  Command<spec::modify_cq_in> change(Op::MODIFY_CQ);
  change.set(spec::modify_cq_in::cqn, cqn_of(cq));
  lead_to(kOther, change);
  EXPECT_EQ(program_.modify(cq.handle, change).wrong, EINVAL);
  lead_to(kOwn, change);
  EXPECT_NE(program_.modify(cq.handle, change).wrong, EINVAL);
}

// devx_is_obj_create_cmd. An object of DevX ends by one number, so that others would stay.
TEST_F(UverbsDevx, SignatureValuesAreMadeOneByOne) {
  using In = spec::create_psv_in;
  const auto pdn = pdn_of(program_.pd());
  const auto make = [&](std::uint32_t count) {
    Command<In> in(Op::CREATE_PSV);
    in.set(In::num_psv, count);
    in.set(In::pd, pdn);
    return program_.create(in).wrong;
  };
  EXPECT_EQ(make(0), EINVAL);
  EXPECT_EQ(make(1), 0);
  EXPECT_EQ(make(2), EINVAL);
  EXPECT_EQ(make(4), EINVAL);
}

// mlx5_create_cq of the kernel.
TEST_F(UverbsDevx, ACompletionQueueOfNoEventQueueIsNotMade) {
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  auto command = program_.cq_command(umem.id, kRecord, program_.uar());
  command.sub(spec::create_cq_in::cq_context_entry)
      .set(spec::cq_context::c_eqn, program_.eqn() + 1);
  EXPECT_EQ(program_.create(command).wrong, ENOENT);
}

TEST_F(UverbsDevx, MemoryStaysWhileAQueueLiesInIt) {
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  const auto cq = program_.create(program_.cq_command(umem.id, kRecord, program_.uar()));
  ASSERT_EQ(cq.wrong, 0);
  EXPECT_EQ(program_.dereg_umem(umem.handle), EINVAL);
  EXPECT_EQ(program_.destroy(cq.handle), 0);
  EXPECT_EQ(program_.dereg_umem(umem.handle), 0);
  EXPECT_EQ(program_.dereg_umem(umem.handle), ENOENT);
}

TEST_F(UverbsDevx, MemoryIsWhereTheProgramHasIt) {
  EXPECT_EQ(program_.reg_umem(program_.memory(), 0).wrong, EINVAL);
  EXPECT_EQ(program_.reg_umem(UINT64_MAX - 10, 100).wrong, EINVAL);
  EXPECT_EQ(program_.reg_umem(8 * kPage, kPage).wrong, EFAULT);
  EXPECT_EQ(program_.reg_umem(program_.memory(), kPage, 2048).wrong, EINVAL)
      << "no page is as small as that";
  EXPECT_EQ(program_.reg_umem(program_.memory() + 24, 8).wrong, 0);
}

TEST_F(UverbsDevx, ADomainStaysWhileAKeyIsInIt) {
  const auto pd = program_.pd();
  const auto destroy_pd = [&] {
    return Call(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
        .number(UVERBS_ATTR_DESTROY_PD_HANDLE, pd)
        .on(program_.context());
  };
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  const auto key = program_.create(mkey_command(pdn_of(pd), umem.id));
  ASSERT_EQ(key.wrong, 0) << key.status();
  EXPECT_EQ(destroy_pd(), EINVAL);
  EXPECT_EQ(program_.destroy(key.handle), 0);
  EXPECT_EQ(destroy_pd(), 0);
}

TEST_F(UverbsDevx, AnObjectIsAskedOfByItsOwnHandle) {
  const auto page = program_.uar();
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  const auto one = program_.create(program_.cq_command(umem.id, kRecord, page));
  const auto two = program_.create(program_.cq_command(umem.id, kRecord + 64, page));
  ASSERT_EQ(two.wrong, 0);
  const auto told = program_.query(one.handle, query_cq(cqn_of(one)));
  EXPECT_EQ(told.wrong, 0);
  const auto cq =
      util::View<spec::query_cq_out>(told.out).get(spec::query_cq_out::cq_context_entry);
  EXPECT_EQ(cq.get(spec::cq_context::log_cq_size), 4u);
  EXPECT_EQ(program_.query(one.handle, query_cq(cqn_of(two))).wrong, EINVAL);
  EXPECT_EQ(program_.query(umem.handle, query_cq(cqn_of(one))).wrong, EINVAL);
  EXPECT_EQ(program_.query(99, query_cq(cqn_of(one))).wrong, ENOENT);
  EXPECT_EQ(program_.modify(one.handle, query_cq(cqn_of(one))).wrong, EINVAL)
      << "a question changes nothing";
}

TEST_F(UverbsDevx, AnswersToLaterQuestionsAreRead) {
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  const auto cq = program_.create(program_.cq_command(umem.id, kRecord, program_.uar()));
  Call alloc(MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC);
  ASSERT_EQ(alloc.number(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, 0).on(program_.context()), 0);
  const int fd = static_cast<int>(alloc.made(0));
  const auto in = query_cq(cqn_of(cq));
  const auto ask = [&](int number, std::uint64_t wr_id) {
    return Call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY)
        .number(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, cq.handle)
        .add(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, 16,
             reinterpret_cast<std::uint64_t>(in.all().data()))
        .number(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, static_cast<std::uint64_t>(number))
        .in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, wr_id)
        .in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, std::uint16_t{spec::query_cq_out::kSize})
        .on(program_.context());
  };
  EXPECT_EQ(ask(0, 1), EBADF);
  EXPECT_EQ(ask(fd, 5), 0);
  EXPECT_EQ(ask(fd, 6), 0);
  for (const std::uint64_t wr_id : {5, 6}) {
    std::array<std::byte, 4096> record;
    const auto size = ::read(fd, record.data(), record.size());
    ASSERT_EQ(size, static_cast<ssize_t>(8 + spec::query_cq_out::kSize)) << "one at a time";
    std::uint64_t read_id = 0;
    std::memcpy(&read_id, record.data(), sizeof read_id);
    EXPECT_EQ(read_id, wr_id);
    EXPECT_EQ(record[8], std::byte{0}) << "its status";
  }
  ::close(fd);
}

/// Closing the file destroys what the program did not destroy: ~Program checks it.
TEST_F(UverbsDevx, ClosingTheFileDestroysRemainingObjects) {
  const auto pd = program_.pd();
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  ASSERT_EQ(program_.create(mkey_command(pdn_of(pd), umem.id)).wrong, 0);
  ASSERT_EQ(program_.create(program_.cq_command(umem.id, kRecord, program_.uar())).wrong, 0);
  ASSERT_EQ(program_.create(Command<spec::alloc_pd_in>(Op::ALLOC_PD)).wrong, 0);
  program_.close();
  EXPECT_TRUE(program_.device().records().empty());
}

TEST_F(UverbsDevx, MemoryThatIsLostTakesAlongWhatLiesInIt) {
  const auto umem = program_.reg_umem(program_.memory(), 4 * kPage);
  const auto cq = program_.create(program_.cq_command(umem.id, kRecord, program_.uar()));
  ASSERT_EQ(cq.wrong, 0);
  program_.context().lose_memory(program_.memory() + kRecord, true);
  EXPECT_TRUE(program_.device().records().empty());
  EXPECT_EQ(program_.query(cq.handle, query_cq(cqn_of(cq))).wrong, EREMOTEIO);
  EXPECT_EQ(program_.destroy(cq.handle), 0);
  EXPECT_EQ(program_.dereg_umem(umem.handle), 0);
}

}  // namespace
}  // namespace softhca::uverbs
