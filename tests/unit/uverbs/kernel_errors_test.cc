// The calls that Linux refuses, and their errno: a program that runs here must run there.
#include <gtest/gtest.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <cerrno>

#include "spec/connectx/mkey.h"
#include "spec/connectx/raw_queues.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/program.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint32_t kZeroBased = 32;
constexpr std::uint32_t kPrefetch = IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
constexpr std::uint32_t kPrefetchWrite = IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
constexpr std::uint32_t kFlush = IB_UVERBS_ADVISE_MR_FLAG_FLUSH;

class UverbsKernelErrors : public testing::Test {
 protected:
  Errno destroy(std::uint16_t object, std::uint16_t method, std::uint16_t attribute,
                std::uint32_t handle) {
    return Call(object, method).number(attribute, handle).on(program_.context());
  }
  Errno destroy_pd(std::uint32_t handle) {
    return destroy(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, UVERBS_ATTR_DESTROY_PD_HANDLE,
                   handle);
  }
  Errno reg(std::uint32_t access, std::uint64_t size = 4096) {
    ib_uverbs_reg_mr_resp mr{};
    return program_.reg_mr(pd_, program_.memory(), size, access, mr);
  }
  Errno advise(std::uint32_t pd, std::uint32_t advice, std::uint32_t flags, ib_uverbs_sge piece) {
    return Call(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR)
        .number(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd)
        .in(UVERBS_ATTR_ADVISE_MR_ADVICE, advice)
        .in(UVERBS_ATTR_ADVISE_MR_FLAGS, flags)
        .in(UVERBS_ATTR_ADVISE_MR_SGE_LIST, piece)
        .on(program_.context());
  }
  ib_uverbs_create_ah address() const {
    ib_uverbs_create_ah in{};
    in.pd_handle = pd_;
    in.attr.port_num = in.attr.is_global = 1;
    const auto to = driver::Gid::from_ipv4(198, 18, 0, 2);
    std::memcpy(in.attr.grh.dgid, to.bytes.data(), sizeof in.attr.grh.dgid);
    return in;
  }
  Errno create_ah(const ib_uverbs_create_ah& in, std::uint32_t& handle) {
    return write_command(program_.context(), IB_USER_VERBS_CMD_CREATE_AH, in, handle);
  }
  ib_uverbs_query_device_resp device() {
    ib_uverbs_query_device_resp out{};
    EXPECT_EQ(
        write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_DEVICE, std::uint64_t{0}, out),
        0);
    return out;
  }

  Program program_;
  std::uint32_t pd_ = program_.pd();
};

// ib_check_mr_access.
TEST_F(UverbsKernelErrors, AccessThatHasNoNameIsInvalidAndThatOfOtherDevicesIsNotSupported) {
  for (const unsigned bit : {10, 19, 30, 31}) {
    EXPECT_EQ(reg(kLocalWrite | 1u << bit), EINVAL) << bit;
  }
  EXPECT_EQ(reg(kRemoteWrite), EINVAL);
  EXPECT_EQ(reg(kLocalWrite | 0x100), EOPNOTSUPP) << "FLUSH_GLOBAL";
  EXPECT_EQ(reg(kLocalWrite | 0x200), EOPNOTSUPP) << "FLUSH_PERSISTENT";
  EXPECT_EQ(reg(kLocalWrite | kZeroBased), 0);
  for (const unsigned bit : {20, 29}) EXPECT_EQ(reg(kLocalWrite | 1u << bit), 0) << "optional";
  EXPECT_EQ(reg(kLocalWrite, 0), EINVAL);
}

// rdma_lookup_get_uobject.
TEST_F(UverbsKernelErrors, AHandleOfNothingIsNotFoundAndOneOfAnotherKindIsInvalid) {
  constexpr std::uint32_t kNone = 0x7fffffff;
  ib_uverbs_reg_mr_resp mr{}, none{};
  ASSERT_EQ(program_.reg_mr(pd_, program_.memory(), 4096, kLocalWrite, mr), 0);
  EXPECT_EQ(program_.reg_mr(kNone, program_.memory(), 4096, kLocalWrite, none), ENOENT);
  EXPECT_EQ(program_.reg_mr(mr.mr_handle, program_.memory(), 4096, kLocalWrite, none), EINVAL);
  EXPECT_EQ(destroy_pd(kNone), ENOENT);
  EXPECT_EQ(destroy_pd(mr.mr_handle), EINVAL);
}

// ib_init_umem_odp and ib_umem_get.
TEST_F(UverbsKernelErrors, MemoryOnDemandNeedNotBeAnAddressOfAProgram) {
  const auto reg_at = [&](std::uint64_t start, std::uint64_t size, std::uint32_t access) {
    ib_uverbs_reg_mr_resp mr{};
    return program_.reg_mr(pd_, start, size, access, mr);
  };
  constexpr std::uint64_t kKernel = 0xffff800000000000;
  EXPECT_EQ(reg_at(kKernel, 4096, kOnDemand), 0);
  EXPECT_EQ(reg_at(kKernel, 4096, kLocalWrite), EFAULT);
  EXPECT_EQ(reg_at(4096 + 8, 0, kOnDemand), 0) << "of the page in which it begins";
  EXPECT_EQ(reg_at(4096, 0, kOnDemand), EINVAL);
  EXPECT_EQ(reg_at(0, 0, kOnDemand), EOVERFLOW);
  EXPECT_EQ(reg_at(UINT64_MAX, 1, kOnDemand), EOVERFLOW);
  EXPECT_EQ(reg_at(4096, std::uint64_t{1} << 40, kOnDemand), ENOMEM) << "for the list of pages";
  EXPECT_EQ(reg_at(4096, std::uint64_t{1} << 47, kLocalWrite), EINVAL) << "too many pages";
  EXPECT_EQ(reg_at(0, UINT64_MAX, kOnDemand), 0);
  EXPECT_EQ(reg_at(0, UINT64_MAX, kOnDemand | kHugePages), EINVAL);
}

// can_use_umr_rereg_access.
TEST_F(UverbsKernelErrors, AKeyStaysWhereTheDeviceCanChangeItsRights) {
  const auto changed = [&](std::uint32_t access) {
    ib_uverbs_reg_mr_resp mr{};
    EXPECT_EQ(program_.reg_mr(pd_, program_.memory(), 4096, kLocalWrite, mr), 0);
    ib_uverbs_rereg_mr in{};
    in.mr_handle = mr.mr_handle;
    in.flags = 4;  // IB_MR_REREG_ACCESS
    in.access_flags = access;
    ib_uverbs_rereg_mr_resp out{};
    EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, out), 0);
    return out.lkey != mr.lkey;
  };
  EXPECT_FALSE(changed(kLocalWrite | kRemoteWrite | kRelaxedOrdering));
  EXPECT_TRUE(changed(kLocalWrite | kBindWindow));
  EXPECT_TRUE(changed(kLocalWrite | kZeroBased));
}

// can_use_umr_rereg_pas: a key has room for a power of two of pages, at least four.
TEST_F(UverbsKernelErrors, AKeyStaysWhereItHasRoomForTheNewMemory) {
  using Mkc = spec::mkey_context;
  using Out = spec::query_mkey_out;
  std::uint32_t last_key = 0;
  const auto start = program_.memory() + kPage + 8;
  const auto stays = [&](std::uint64_t before, std::uint64_t after,
                         std::uint32_t access = kLocalWrite | kRemoteRead) {
    ib_uverbs_reg_mr_resp mr{};
    EXPECT_EQ(program_.reg_mr(pd_, program_.memory(), before * kPage, kLocalWrite, mr), 0);
    ib_uverbs_rereg_mr in{};
    in.mr_handle = mr.mr_handle;
    in.flags = kReregTranslation | kReregAccess;
    in.start = in.hca_va = start;
    in.length = after * kPage - 8;
    in.access_flags = access;
    ib_uverbs_rereg_mr_resp out{};
    EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, out), 0);
    last_key = out.lkey;
    return out.lkey == mr.lkey && out.rkey == mr.lkey;
  };
  EXPECT_FALSE(stays(1, 5));
  EXPECT_TRUE(stays(5, 8));
  EXPECT_FALSE(stays(8, 9));
  EXPECT_FALSE(stays(4, 1, kLocalWrite | kOnDemand));
  EXPECT_FALSE(stays(4, 1, kLocalWrite | kZeroBased)) << "no UMR changes that";
  ASSERT_TRUE(stays(1, 4));

  Command<spec::query_mkey_in> query(spec::command_opcode::QUERY_MKEY);
  query.set(spec::query_mkey_in::mkey_index, last_key >> 8);
  const auto answer = program_.device().commands().execute<Out>(query);
  ASSERT_TRUE(answer);
  const auto key = answer->get(Out::mkey_context);
  EXPECT_EQ(key.get(Mkc::start_addr), start);
  EXPECT_EQ(key.get(Mkc::len), 4 * kPage - 8);
  EXPECT_EQ(key.get(Mkc::rr), 1u);
  const auto size = std::uint64_t{1} << key.get(Mkc::log_page_size);
  const auto entries = answer->get(Out::bsf0_klm0_pas_mtt0_1);
  const util::View<spec::mtt_entry> first(entries.first(spec::mtt_entry::kSize));
  EXPECT_EQ(first.get(spec::mtt_entry::ptag) << spec::mtt_entry::ptag.kLo,
            Device::bus_address(start & ~(size - 1)));
  EXPECT_EQ(first.get(spec::mtt_entry::wr_en), 1u);
}

// mlx5_ib_rereg_user_mr: the pages of a region on demand get no second key.
TEST_F(UverbsKernelErrors, ARegionOnDemandKeepsItsKind) {
  const auto change = [&](std::uint64_t size, std::uint32_t access, std::uint32_t& key) {
    ib_uverbs_reg_mr_resp mr{};
    const auto start = size == UINT64_MAX ? 0 : program_.memory();
    EXPECT_EQ(program_.reg_mr(pd_, start, size, kLocalWrite | kOnDemand, mr), 0);
    ib_uverbs_rereg_mr in{};
    in.mr_handle = mr.mr_handle;
    in.flags = kReregAccess;
    in.access_flags = access;
    ib_uverbs_rereg_mr_resp out{};
    const auto wrong = write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, out);
    key = out.lkey ^ mr.lkey;
    return wrong;
  };
  std::uint32_t difference = 0;
  EXPECT_EQ(change(4096, kLocalWrite, difference), EOPNOTSUPP);
  EXPECT_EQ(change(4096, kLocalWrite | kOnDemand | kZeroBased, difference), EOPNOTSUPP);
  EXPECT_EQ(change(4096, kOnDemand, difference), 0);
  EXPECT_EQ(difference, 0u);
  EXPECT_EQ(change(UINT64_MAX, kLocalWrite, difference), EOPNOTSUPP);
  EXPECT_EQ(change(UINT64_MAX, kOnDemand, difference), 0);
  EXPECT_NE(difference, 0u) << "Linux registers all of memory anew";
}

TEST_F(UverbsKernelErrors, HandlesOfAKindAreListed) {
  const auto handles = [&](std::uint64_t object, std::span<std::uint32_t> list,
                           std::uint32_t& count) {
    return Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES)
        .in(UVERBS_ATTR_INFO_OBJECT_ID, object)
        .out(UVERBS_ATTR_INFO_TOTAL_HANDLES, count)
        .add(UVERBS_ATTR_INFO_HANDLES_LIST, static_cast<std::uint16_t>(list.size_bytes()),
             reinterpret_cast<std::uint64_t>(list.data()))
        .on(program_.context());
  };
  const auto other = program_.pd();
  std::array<std::uint32_t, 8> list{};
  std::uint32_t count = 0;
  ASSERT_EQ(handles(UVERBS_OBJECT_PD, list, count), 0);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(list[0], pd_);
  EXPECT_EQ(list[1], other);
  ASSERT_EQ(handles(UVERBS_OBJECT_PD, std::span(list).first(1), count), 0);
  EXPECT_EQ(count, 1u) << "as many as there is room for";
  EXPECT_EQ(handles(UVERBS_OBJECT_DEVICE, list, count), EINVAL);
}

// mlx5_ib_advise_mr_prefetch.
TEST_F(UverbsKernelErrors, OnlyRegionsOnDemandOfTheDomainArePrefetched) {
  ib_uverbs_reg_mr_resp pinned{}, paged{};
  ASSERT_EQ(program_.reg_mr(pd_, program_.memory(), 4096, kLocalWrite, pinned), 0);
  ASSERT_EQ(program_.reg_mr(pd_, program_.memory(), 4096, kOnDemand, paged), 0);
  ib_uverbs_sge piece{.addr = program_.memory(), .length = 4096, .lkey = pinned.lkey};
  EXPECT_EQ(advise(pd_, kPrefetch, 0, piece), ENOENT);
  piece.lkey = paged.lkey;
  EXPECT_EQ(advise(program_.pd(), kPrefetch, 0, piece), EPERM);
  EXPECT_EQ(advise(pd_, kPrefetchWrite, 0, piece), EPERM) << "it may not be written";
  EXPECT_EQ(advise(pd_, kPrefetch, 2, piece), EINVAL);
  EXPECT_EQ(advise(pd_, 3, 0, piece), EOPNOTSUPP);
  EXPECT_EQ(advise(pd_, kPrefetch, kFlush, piece), 0);
  piece.length = 8192;
  EXPECT_EQ(advise(pd_, kPrefetch, kFlush, piece), EFAULT);
  EXPECT_EQ(advise(pd_, kPrefetch, 0, piece), 0) << "a worker finds that out";
}

// rdma_create_user_ah: an AH is a user of its PD, and holds its entry of the GID table.
TEST_F(UverbsKernelErrors, AnAddressHandleHoldsItsDomainAndItsGid) {
  std::uint32_t handle = 0;
  ASSERT_EQ(create_ah(address(), handle), 0);
  EXPECT_EQ(destroy_pd(pd_), EBUSY);
  ASSERT_TRUE(program_.device().set_gid(0, std::nullopt));
  EXPECT_FALSE(program_.device().is_gid_free(0));
  EXPECT_EQ(
      destroy(UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, UVERBS_ATTR_DESTROY_AH_HANDLE, handle),
      0);
  EXPECT_TRUE(program_.device().is_gid_free(0));
  EXPECT_EQ(destroy_pd(pd_), 0);
}

TEST_F(UverbsKernelErrors, AnAddressHandleWithWrongAttributesIsRefused) {
  std::uint32_t handle = 0;
  auto in = address();
  in.attr.port_num = 2;
  EXPECT_EQ(create_ah(in, handle), EINVAL);
  in = address();
  in.attr.is_global = 0;
  EXPECT_EQ(create_ah(in, handle), EINVAL);
  in = address();
  in.attr.grh.sgid_index = 7;
  EXPECT_EQ(create_ah(in, handle), ENODATA);
  in = address();
  in.attr.static_rate = 1;
  EXPECT_EQ(create_ah(in, handle), EINVAL);
  program_.knows_macs = false;
  EXPECT_EQ(create_ah(address(), handle), ETIMEDOUT);
  in = address();
  const auto group = driver::Gid::from_ipv4(239, 1, 1, 1);
  std::memcpy(in.attr.grh.dgid, group.bytes.data(), sizeof in.attr.grh.dgid);
  EXPECT_EQ(create_ah(in, handle), 0) << "a group needs no answer";
}

// mlx5_ib_query_device: the limits reported are usable.
TEST_F(UverbsKernelErrors, LimitsAreThoseOfLinux) {
  const auto limits = device();
  EXPECT_EQ(limits.max_qp_wr, 8192u);
  EXPECT_EQ(limits.max_srq_sge, 31u);
  EXPECT_EQ(limits.max_pkeys, 128u);
}

TEST_F(UverbsKernelErrors, FlagsThatThereAreNotAreRefused) {
  ib_uverbs_query_port_resp_ex port{};
  ASSERT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                .in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, std::uint8_t{1})
                .out(UVERBS_ATTR_QUERY_PORT_RESP, port)
                .on(program_.context()),
            0);
  EXPECT_EQ(port.legacy_resp.flags, IB_UVERBS_QPF_GRH_REQUIRED);
  EXPECT_EQ(port.legacy_resp.max_vl_num, 0);
  ib_uverbs_gid_entry entry{};
  for (const std::uint32_t flags : {0, 1}) {
    EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY)
                  .in(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, std::uint64_t{1})  // as libibverbs does
                  .in(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, std::uint64_t{0})
                  .in(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, flags)
                  .out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry)
                  .on(program_.context()),
              flags == 0 ? 0 : EINVAL);
  }
}

// uverbs_get_flags32.
TEST_F(UverbsKernelErrors, FlagsOfACqThatHaveNoNameAreInvalid) {
  const auto page = program_.uar();
  std::uint32_t cq = 0;
  EXPECT_EQ(program_.create_cq(page, {.flags = 1u << 2}, cq), EINVAL);
  EXPECT_EQ(program_.create_cq(page, {.flags = 1u << 31}, cq), EINVAL);
  EXPECT_EQ(program_.create_cq(page,
                               {.flags = IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION |
                                         IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN},
                               cq),
            0);
}

TEST_F(UverbsKernelErrors, FlagsOfAWqThatHaveNoNameAreInvalidAndThoseOfOtherCardsNotSupported) {
  const auto cq = program_.create_cq(program_.uar());
  std::uint32_t wq = 0;
  EXPECT_EQ(program_.create_wq(pd_, cq, {.flags = 1u << 4}, wq), EINVAL);
  EXPECT_EQ(program_.create_wq(pd_, cq, {.flags = 1u << 31}, wq), EINVAL);
  EXPECT_EQ(program_.create_wq(pd_, cq, {.flags = IB_UVERBS_WQ_FLAGS_SCATTER_FCS}, wq), EOPNOTSUPP);
  EXPECT_EQ(program_.create_wq(pd_, cq, {.flags = IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING}, wq),
            EOPNOTSUPP);
  EXPECT_EQ(program_.create_wq(pd_, cq, {.flags = IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING}, wq), 0);
}

// create_srq_user and create_user_rq of mlx5_ib: MLX5_SRQ_SIGNATURE=1 and MLX5_RWQ_SIGNATURE=1 are
// accepted on any card, and flags without a name are ignored.
TEST_F(UverbsKernelErrors, SharedAndReceiveQueuesAcceptSignatures) {
  std::uint32_t handle = 0, number = 0;
  const auto srq_is_signed = [&](std::uint32_t driver_flags) {
    EXPECT_EQ(program_.create_srq(pd_, {.driver_flags = driver_flags, .number = &number}, handle),
              0);
    Command<spec::query_rmp_in> in(spec::command_opcode::QUERY_RMP);
    in.set(spec::query_rmp_in::rmpn, number);
    const auto out = program_.device().commands().execute<spec::query_rmp_out>(in);
    EXPECT_TRUE(out);
    if (!out) return false;
    const auto rmp = out->get(spec::query_rmp_out::rmp_context);
    return rmp.get(spec::rmp_context::wq).get(spec::wq::wq_signature) != 0;
  };
  EXPECT_FALSE(srq_is_signed(0));
  EXPECT_TRUE(srq_is_signed(MLX5_SRQ_FLAG_SIGNATURE));
  EXPECT_FALSE(srq_is_signed(1u << 1));
  const auto cq = program_.create_cq(program_.uar());
  const auto wq_is_signed = [&](std::uint32_t driver_flags) {
    EXPECT_EQ(
        program_.create_wq(pd_, cq, {.driver_flags = driver_flags, .number = &number}, handle), 0);
    Command<spec::query_rq_in> in(spec::command_opcode::QUERY_RQ);
    in.set(spec::query_rq_in::rqn, number);
    const auto out = program_.device().commands().execute<spec::query_rq_out>(in);
    EXPECT_TRUE(out);
    if (!out) return false;
    const auto rq = out->get(spec::query_rq_out::rq_context);
    return rq.get(spec::rq_context::wq).get(spec::wq::wq_signature) != 0;
  };
  EXPECT_FALSE(wq_is_signed(0));
  EXPECT_TRUE(wq_is_signed(MLX5_WQ_FLAG_SIGNATURE));
  EXPECT_FALSE(wq_is_signed(1u << 1));
}

// _uverbs_get_const, uverbs_request.
TEST_F(UverbsKernelErrors, BytesBeyondTheKnownStructureMustBeZero) {
  ib_uverbs_query_port_resp_ex port{};
  for (const auto number : {std::uint64_t{1}, std::uint64_t{0x101}}) {
    EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                  .in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, number)
                  .out(UVERBS_ATTR_QUERY_PORT_RESP, port)
                  .on(program_.context()),
              number == 1 ? 0 : EINVAL);
  }
  std::uint32_t pd = 0;
  std::array<std::uint64_t, 2> in{};
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_ALLOC_PD, in, pd), 0);
  in[1] = 1;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_ALLOC_PD, in, pd), EOPNOTSUPP);
}

// mlx5dv_devx_alloc_uar with flags 0. If it is refused, UCX assumes that there is no DevX.
TEST_F(UverbsKernelErrors, ABlueFlamePageIsADoorbellPage) {
  constexpr std::uint32_t kNone = 7;
  for (const std::uint32_t type : {std::uint32_t{MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF},
                                   std::uint32_t{MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC}, kNone}) {
    std::uint64_t offset = 0;
    std::uint32_t length = 0, page = 0;
    EXPECT_EQ(Call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
                  .number(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0)
                  .in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, type)
                  .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset)
                  .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length)
                  .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page)
                  .on(program_.context()),
              type == kNone ? EOPNOTSUPP : 0);
  }
}

// ib_uverbs_get_ucontext_file.
TEST_F(UverbsKernelErrors, AFileWithoutAContextMakesNothingAndReportsNothing) {
  const auto file = program_.open_file();
  ib_uverbs_query_port_resp_ex port{};
  EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                .in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, std::uint64_t{1})
                .out(UVERBS_ATTR_QUERY_PORT_RESP, port)
                .on(*file),
            EINVAL);
  mlx5_ib_alloc_ucontext_resp context{};
  EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT)
                .out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, context)
                .on(*file),
            EINVAL)
      << "ibv_import_device";
  EXPECT_EQ(Call(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC)
                .number(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0)
                .on(*file),
            EINVAL);
  std::uint32_t eqn = 0;
  EXPECT_EQ(Call(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN)
                .in(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, std::uint32_t{0})
                .out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, eqn)
                .on(*file),
            EINVAL);
  std::uint32_t pd = 0;
  EXPECT_EQ(write_command(*file, IB_USER_VERBS_CMD_ALLOC_PD, std::uint64_t{0}, pd), EINVAL);
  ib_uverbs_query_device_resp device{};
  EXPECT_EQ(write_command(*file, IB_USER_VERBS_CMD_QUERY_DEVICE, std::uint64_t{0}, device), EINVAL);
  // There are no objects, and that can be asked.
  EXPECT_EQ(Call(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
                .number(UVERBS_ATTR_DESTROY_PD_HANDLE, pd_)
                .on(*file),
            ENOENT);
  std::array<std::uint32_t, 2> list{};
  EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES)
                .in(UVERBS_ATTR_INFO_OBJECT_ID, std::uint64_t{UVERBS_OBJECT_PD})
                .out(UVERBS_ATTR_INFO_HANDLES_LIST, list)
                .on(*file),
            0);
}

// ib_init_ucontext.
TEST_F(UverbsKernelErrors, AFileHasOneContextAndGetsItOnlyIfTheCallSucceeds) {
  const auto file = program_.open_file();
  mlx5_ib_alloc_ucontext_req_v2 in{};
  in.flags = MLX5_IB_ALLOC_UCTX_DEVX;
  in.max_cqe_version = 1;
  in.lib_caps = MLX5_LIB_CAP_DYN_UAR;
  EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
                .in(UVERBS_ATTR_UHW_IN, in)
                .add(UVERBS_ATTR_UHW_OUT, sizeof(mlx5_ib_alloc_ucontext_resp), 8)
                .on(*file),
            EFAULT);
  EXPECT_EQ(Program::get_context(*file, true), 0);
  EXPECT_EQ(Program::get_context(*file, true), EINVAL);
  EXPECT_EQ(Program::get_context(*file, false), EINVAL);
}

// ibv_alloc_null_mr of libmlx5 returns this key.
TEST_F(UverbsKernelErrors, TheContextReportsTheKeyThatKeepsNothing) {
  mlx5_ib_alloc_ucontext_resp out{};
  ASSERT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT)
                .out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, out)
                .on(program_.context()),
            0);
  EXPECT_NE(out.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY, 0u);
  EXPECT_NE(out.dump_fill_mkey, 0u);
}

}  // namespace
}  // namespace softhca::uverbs
