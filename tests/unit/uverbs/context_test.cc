// One open device file (kernel interface 3.2, 4): objects, refusals and their errno.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/datagram.h"
#include "driver/connectx/queue_pair.h"
#include "spec/connectx/mkey.h"
#include "uverbs/abi.h"
#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

class UverbsContext : public testing::Test {
 protected:
  Errno destroy_pd(std::uint32_t handle) {
    return Call(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
        .number(UVERBS_ATTR_DESTROY_PD_HANDLE, handle)
        .on(program_.context());
  }
  Errno destroy_mr(std::uint32_t handle) {
    return Call(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY)
        .number(UVERBS_ATTR_DESTROY_MR_HANDLE, handle)
        .on(program_.context());
  }
  struct Cq {
    std::uint32_t handle = 0;
    std::uint32_t last = 0;
    Errno wrong = 0;
  };
  /// CQEs of 64 bytes from the second page on. The doorbell record is at the end of the memory.
  Cq create_cq(std::uint32_t page, std::uint32_t entries, std::uint64_t buffer,
               std::optional<std::uint32_t> channel = std::nullopt,
               std::optional<std::uint32_t> events = std::nullopt) {
    Cq cq;
    mlx5_ib_create_cq own{};
    own.buf_addr = buffer;
    own.db_addr = record();
    own.cqe_size = 64;
    own.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    own.uar_page_index = static_cast<std::uint16_t>(page);
    mlx5_ib_create_cq_resp numbers{};
    Call call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    call.number(UVERBS_ATTR_CREATE_CQ_HANDLE, 0)
        .in(UVERBS_ATTR_CREATE_CQ_CQE, entries)
        .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, std::uint64_t{7})
        .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, std::uint32_t{0})
        .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, cq.last)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, numbers);
    if (channel) call.number(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, *channel);
    if (events) call.number(UVERBS_ATTR_CREATE_CQ_EVENT_FD, *events);
    cq.wrong = call.on(program_.context());
    cq.handle = call.made(0);
    return cq;
  }
  std::uint64_t record() const { return program_.memory() + Program::kMemory - 4096; }
  std::uint32_t async_events() {
    Call alloc(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
    EXPECT_EQ(alloc.number(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0).on(program_.context()), 0);
    return alloc.made(0);
  }
  /// The types of the events that wait in a descriptor.
  static std::vector<std::uint32_t> types_in(std::uint32_t events) {
    ::fcntl(static_cast<int>(events), F_SETFL, O_NONBLOCK);
    std::vector<std::uint32_t> types;
    ib_uverbs_async_event_desc event{};
    while (::read(static_cast<int>(events), &event, sizeof event) == ssize_t{sizeof event}) {
      types.push_back(event.event_type);
    }
    return types;
  }

  Program program_;
};

TEST_F(UverbsContext, AnUnknownMethodIsAProtocolNotSupported) {
  EXPECT_EQ(Call(UVERBS_OBJECT_PD, 77).on(program_.context()), EPROTONOSUPPORT);
  EXPECT_EQ(Call(0x1234, 0).on(program_.context()), EPROTONOSUPPORT);
}

// mlx5_query_port_roce: qkey_viol_cntr is the NIC vport's.
TEST_F(UverbsContext, APortCountsWrongQkeys) {
  namespace mlx5 = driver::connectx;
  auto& hca = program_.device().hca();
  const auto pd = mlx5::ProtectionDomain::create(hca).value();
  const auto cq = mlx5::CompletionQueue::create(hca, {.entries = 8}).value();
  const auto qp =
      mlx5::QueuePair::create(*pd, {.send_cq = *cq,
                                    .receive_cq = *cq,
                                    .send = {.requests = 2, .pieces = 1, .inline_size = 16},
                                    .receive = {.requests = 2, .pieces = 1},
                                    .service = softhca::spec::connectx::service_type::UD})
          .value();
  ASSERT_TRUE(qp->activate(0x1234));
  const auto count = [&] {
    ib_uverbs_query_port_resp_ex port{};
    EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                  .in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, std::uint8_t{1})
                  .out(UVERBS_ATTR_QUERY_PORT_RESP, port)
                  .on(program_.context()),
              0);
    return port.legacy_resp.qkey_viol_cntr;
  };
  EXPECT_EQ(count(), 0u);
  const mlx5::AddressVector to({.gid = driver::Gid::from_ipv4(198, 18, 0, 1), .mac = hca.mac()});
  const std::array<std::byte, 8> data{};
  ASSERT_EQ(qp->post_send({.opcode = driver::SendOpcode::kSend,
                           .inline_data = data,
                           .address = &to.form(),
                           .remote_qpn = qp->qpn(),
                           .remote_qkey = 0x4321}),
            driver::PostStatus::kOk);
  // The device runs while a call waits for commands.
  unsigned calls = 0;
  while (count() == 0 && calls != 100) ++calls;
  EXPECT_EQ(count(), 1u);
}

// mlx5dv_query_port: a port without an e-switch returns no attributes.
TEST_F(UverbsContext, ThePortIsOfNoSwitch) {
  mlx5_ib_uapi_query_port port{};
  port.flags = ~0ull;
  const auto query = [&](std::uint32_t number) {
    return Call(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT)
        .in(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, number)
        .out(MLX5_IB_ATTR_QUERY_PORT, port)
        .on(program_.context());
  };
  EXPECT_EQ(query(1), 0);
  EXPECT_EQ(port.flags, 0u);
  EXPECT_EQ(query(2), EINVAL);
}

// core/roce_gid_mgmt.c: addresses come and go, and programs that subscribed to events are notified.
TEST_F(UverbsContext, TheTableOfGidsMayChange) {
  const auto entries = [this] {
    std::array<ib_uverbs_gid_entry, 8> all{};
    std::uint64_t count = 99;
    EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE)
                  .in(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, std::uint64_t{sizeof all[0]})
                  .in(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, std::uint32_t{0})
                  .out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, all)
                  .out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count)
                  .on(program_.context()),
              0);
    std::vector<std::uint32_t> indexes;
    for (std::size_t i = 0; i != count; ++i) indexes.push_back(all[i].gid_index);
    return indexes;
  };
  Call alloc(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
  ASSERT_EQ(alloc.number(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0).on(program_.context()), 0);
  const int events = static_cast<int>(alloc.made(0));
  auto& device = program_.device();
  EXPECT_EQ(entries(), std::vector<std::uint32_t>{0});
  ASSERT_TRUE(device.set_gid(3, GidEntry{.gid = driver::Gid::from_ipv4(198, 19, 0, 9)}));
  EXPECT_EQ(entries(), (std::vector<std::uint32_t>{0, 3}));
  ASSERT_TRUE(device.set_gid(0, std::nullopt));
  EXPECT_EQ(entries(), std::vector<std::uint32_t>{3});
  EXPECT_EQ(device.gid(0), nullptr);
  program_.context().report_gid_change();
  ib_uverbs_async_event_desc event{};
  ASSERT_EQ(::read(events, &event, sizeof event), ssize_t{sizeof event});
  EXPECT_EQ(event.event_type, 18u) << "IBV_EVENT_GID_CHANGE";
  EXPECT_EQ(event.element, 1u) << "of the port";
  ::close(events);
}

// ibv_import_device: a second context of the file has a descriptor for events of its own, and its
// objects name it (ib_uverbs_get_async_event).
TEST_F(UverbsContext, EventsGoWhereTheirObjectSays) {
  using Types = std::vector<std::uint32_t>;
  constexpr std::uint32_t kCqError = 0, kGidChange = 18;
  const auto own = async_events(), imported = async_events();
  const auto page = program_.uar();
  program_.context().report_gid_change();
  EXPECT_EQ(types_in(own), Types{kGidChange});
  EXPECT_EQ(types_in(imported), Types{kGidChange}) << "of no object";
  ASSERT_EQ(create_cq(page, 63, program_.memory()).wrong, 0);
  ASSERT_EQ(create_cq(page, 63, program_.memory() + 4096, std::nullopt, imported).wrong, 0);
  program_.context().lose_memory(program_.memory(), false);
  EXPECT_EQ(types_in(own), Types{kCqError}) << "of an object that names none";
  EXPECT_EQ(types_in(imported), Types{});
  program_.context().lose_memory(program_.memory() + 4096, false);
  EXPECT_EQ(types_in(own), Types{});
  EXPECT_EQ(types_in(imported), Types{kCqError});

  ib_uverbs_create_comp_channel_resp channel{};
  ASSERT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
                          std::uint64_t{0}, channel),
            0);
  const auto elsewhere = program_.memory() + 8192;
  EXPECT_EQ(create_cq(page, 63, elsewhere, std::nullopt, channel.fd).wrong, EBADF);
  EXPECT_EQ(create_cq(page, 63, elsewhere, own).wrong, EBADF) << "no completion channel";
  for (const auto fd : {own, imported, channel.fd}) ::close(static_cast<int>(fd));
}

TEST_F(UverbsContext, TheProbeOfTheWriteFormFindsNoRoomForItsOutput) {
  EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
                .in(UVERBS_ATTR_WRITE_CMD, std::uint32_t{IB_USER_VERBS_CMD_QUERY_DEVICE})
                .on(program_.context()),
            ENOSPC);
}

TEST_F(UverbsContext, AHandleOfNothingOrOfAnotherKindIsRefused) {
  const auto pd = program_.pd();
  EXPECT_EQ(destroy_pd(pd + 1), ENOENT);
  EXPECT_EQ(destroy_mr(pd), EINVAL);
  EXPECT_EQ(destroy_pd(pd), 0);
  EXPECT_EQ(destroy_pd(pd), ENOENT);
}

TEST_F(UverbsContext, ObjectsThatOthersUseAreBusy) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 100, kLocalWrite, mr), 0);
  EXPECT_EQ(destroy_pd(pd), EBUSY);
  EXPECT_EQ(destroy_mr(mr.mr_handle), 0);
  EXPECT_EQ(destroy_pd(pd), 0);
}

TEST_F(UverbsContext, MemoryThatIsNotThereOrMayNotBeWrittenIsRefused) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  void* const gone =
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::munmap(gone, 8192);
  const auto address = reinterpret_cast<std::uint64_t>(gone);
  EXPECT_EQ(program_.reg_mr(pd, address, 8192, kLocalWrite, mr), EFAULT);
  EXPECT_EQ(program_.reg_mr(pd, program_.memory(), 100, kRemoteWrite, mr), EINVAL);
  EXPECT_EQ(program_.reg_mr(pd, ~std::uint64_t{0} - 10, 100, kLocalWrite, mr), EINVAL);
  EXPECT_EQ(program_.reg_mr(pd, std::uint64_t{1} << 50, 100, kLocalWrite, mr), EFAULT);
  EXPECT_EQ(program_.reg_mr(pd, program_.memory(), 0, kLocalWrite, mr), EINVAL);
  EXPECT_EQ(program_.reg_mr(pd + 1, program_.memory(), 100, kLocalWrite, mr), ENOENT);
}

// Implicit on-demand paging: one key covers all memory.
TEST_F(UverbsContext, AllMemoryMayBeRegisteredIfItIsPagedOnDemand) {
  constexpr std::uint32_t kOnDemand = 64;
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  EXPECT_EQ(program_.reg_mr(pd, 0, UINT64_MAX, kLocalWrite, mr), EINVAL);
  EXPECT_EQ(program_.reg_mr(pd, 4096, UINT64_MAX, kLocalWrite | kOnDemand, mr), EOVERFLOW);
  ASSERT_EQ(program_.reg_mr(pd, 0, UINT64_MAX, kLocalWrite | kOnDemand, mr), 0);
  std::uint32_t lkey = 0, rkey = 0;
  std::uint64_t length = 0, iova = 1;
  EXPECT_EQ(Call(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
                .number(UVERBS_ATTR_QUERY_MR_HANDLE, mr.mr_handle)
                .out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, lkey)
                .out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, rkey)
                .out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, length)
                .out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, iova)
                .on(program_.context()),
            0);
  EXPECT_EQ(iova, 0u);
  EXPECT_EQ(length, std::uint64_t{1} << 47);
}

/// True if the device allows writes by this key.
bool takes_writes(Program& program, std::uint32_t key) {
  namespace spec = softhca::spec::connectx;
  driver::connectx::Request<spec::query_mkey_in> in(spec::command_opcode::QUERY_MKEY);
  in.set(spec::query_mkey_in::mkey_index, key >> 8);
  const auto out = program.device().commands().execute<spec::query_mkey_out>(in);
  EXPECT_TRUE(out);
  return out && out->get(spec::query_mkey_out::mkey_context).get(spec::mkey_context::rw) != 0;
}

// As in Linux: peers keep using the key that they have.
TEST_F(UverbsContext, RegisteringAnewChangesAKeyInPlace) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 100, kLocalWrite, mr), 0);
  struct {
    std::uint64_t response = 0;
    std::uint32_t handle, flags;
    std::uint64_t start, length, hca_va;
    std::uint32_t pd, access;
  } in{.handle = mr.mr_handle,
       .flags = 4,
       .start = 0,
       .length = 0,
       .hca_va = 0,
       .pd = 0,
       .access = kLocalWrite | kRemoteWrite};
  std::array<std::uint32_t, 2> keys{};
  EXPECT_FALSE(takes_writes(program_, mr.lkey));
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), 0);
  EXPECT_EQ(keys[0], mr.lkey);
  EXPECT_TRUE(takes_writes(program_, keys[0]));
  in.access = kLocalWrite;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), 0);
  EXPECT_EQ(keys[0], mr.lkey);
  EXPECT_FALSE(takes_writes(program_, keys[0]));
  in.flags = 2;  // changes the PD
  in.pd = program_.pd();
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), 0);
  EXPECT_EQ(keys[0], mr.lkey);
  in.flags = 1;
  in.start = in.hca_va = program_.memory() + 8192;
  in.length = 4096;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), 0);
  EXPECT_EQ(keys[0], mr.lkey);
  in.flags = 1;  // to unmapped memory
  in.start = in.hca_va = 4096 * 3;
  in.length = 4096;
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, keys), EFAULT);
  EXPECT_EQ(destroy_mr(mr.mr_handle), 0);
}

TEST_F(UverbsContext, ACqHasThePowerOfTwoThatHoldsOneMore) {
  const auto page = program_.uar();
  const auto cq = create_cq(page, 64, program_.memory());
  EXPECT_EQ(cq.wrong, 0);
  EXPECT_EQ(cq.last, 127u);
  ib_uverbs_destroy_cq_resp told{};
  EXPECT_EQ(Call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY)
                .number(UVERBS_ATTR_DESTROY_CQ_HANDLE, cq.handle)
                .out(UVERBS_ATTR_DESTROY_CQ_RESP, told)
                .on(program_.context()),
            0);
  EXPECT_EQ(told.comp_events_reported, 0u);
}

TEST_F(UverbsContext, ACqWithAChannelIsNotArmedAtFirst) {
  const auto page = program_.uar();
  const auto* const arm = reinterpret_cast<const std::uint32_t*>(record()) + 1;
  ASSERT_EQ(create_cq(page, 64, program_.memory()).wrong, 0);
  EXPECT_EQ(*arm, 0u) << "who has no channel arms nothing";
  ib_uverbs_create_comp_channel_resp channel{};
  ASSERT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
                          std::uint64_t{0}, channel),
            0);
  ASSERT_EQ(create_cq(page, 64, program_.memory(), channel.fd).wrong, 0);
  EXPECT_EQ(*arm, 0xffffffffu) << "rule A1";
}

TEST_F(UverbsContext, ACqOutsideOfTheMemoryOrOfAnotherPageIsRefused) {
  const auto page = program_.uar();
  EXPECT_EQ(create_cq(page, 64, program_.memory() + 8).wrong, EINVAL) << "no multiple of 64";
  EXPECT_EQ(create_cq(page, 64, 4096).wrong, EFAULT);
  EXPECT_EQ(create_cq(page, 64, ~std::uint64_t{4095}).wrong, EFAULT);
  EXPECT_EQ(create_cq(page + 1, 64, program_.memory()).wrong, EINVAL);
  EXPECT_EQ(create_cq(page, 0, program_.memory()).wrong, EINVAL);
  EXPECT_EQ(create_cq(page, 1u << 31, program_.memory()).wrong, EINVAL);
}

// Memory of the program's own allocator (ibv_alloc_parent_domain) may begin anywhere.
TEST_F(UverbsContext, ACqMayBeginInsideOfAPage) {
  const auto page = program_.uar();
  EXPECT_EQ(create_cq(page, 63, program_.memory() + 64).wrong, 0);
  EXPECT_EQ(create_cq(page, 63, program_.memory() + 8192 + 32).wrong, EINVAL);
}

// ib_umem_get() of Linux looks at each page that a queue touches.
TEST_F(UverbsContext, ACqThatEndsOutsideOfTheMemoryIsRefused) {
  const auto page = program_.uar();
  constexpr std::size_t kPages = 2 * kPage;
  void* const pages =
      ::mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(pages) + kPage, kPage, PROT_NONE), 0);
  const auto begin = reinterpret_cast<std::uint64_t>(pages) + 64;
  EXPECT_EQ(create_cq(page, 63, begin).wrong, EFAULT) << "64 bytes are in the second page";
  EXPECT_EQ(create_cq(page, 31, begin).wrong, 0);
  program_.close();
  ::munmap(pages, kPages);
}

TEST_F(UverbsContext, ImportingAPdReturnsItsNumber) {
  const auto pd = program_.pd();
  std::uint32_t number = 0;
  const auto query = [&](std::uint32_t handle) {
    return Call(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
        .number(MLX5_IB_ATTR_QUERY_PD_HANDLE, handle)
        .out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, number)
        .on(program_.context());
  };
  EXPECT_EQ(query(pd), 0);
  EXPECT_NE(number, 0u);
  EXPECT_EQ(query(pd + 1), ENOENT);
}

// QUERY_ADAPTER: ieee_vendor_id, by which programs recognize an mlx5 device.
TEST_F(UverbsContext, TheVendorIsThatOfTheIeee) {
  ib_uverbs_query_device_resp out{};
  EXPECT_EQ(
      write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_DEVICE, std::uint64_t{0}, out), 0);
  EXPECT_EQ(out.vendor_id, 0x02c9u);
}

TEST_F(UverbsContext, RemainingObjectsAreDestroyedWithTheFile) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 100, kLocalWrite, mr), 0);
  ASSERT_EQ(create_cq(program_.uar(), 64, program_.memory()).wrong, 0);
  program_.close();
  EXPECT_TRUE(program_.device().records().empty());
  // Closing the device checks the other objects.
}

// ib_umem_check_rereg(): pages pinned for reading are not pinned again for writing.
TEST_F(UverbsContext, RightsToWriteWantPagesThatWerePinnedSo) {
  const auto pd = program_.pd();
  const auto change_rights = [&](std::uint32_t handle, std::uint32_t access) {
    ib_uverbs_rereg_mr in{};
    in.mr_handle = handle;
    in.flags = 4;  // IB_MR_REREG_ACCESS
    in.access_flags = access;
    ib_uverbs_rereg_mr_resp out{};
    return write_command(program_.context(), IB_USER_VERBS_CMD_REREG_MR, in, out);
  };
  ib_uverbs_reg_mr_resp read, write;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 4096, 0, read), 0);
  EXPECT_EQ(change_rights(read.mr_handle, kLocalWrite), EACCES);
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 4096, kLocalWrite, write), 0);
  EXPECT_EQ(change_rights(write.mr_handle, 0), 0);
  EXPECT_EQ(change_rights(write.mr_handle, kLocalWrite), 0);
}

TEST_F(UverbsContext, TellsTheAccessOfARegion) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 4096, kLocalWrite, mr), 0);
  EXPECT_EQ(program_.context().region_access(mr.mr_handle), kLocalWrite);
  EXPECT_EQ(program_.context().region_access(pd), std::nullopt);
}

// On-demand paging exists for memory that comes and goes.
TEST_F(UverbsContext, AKeyOnDemandOutlivesItsMemory) {
  constexpr std::uint32_t kOnDemand = 64;
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(program_.pd(), program_.memory(), 4096, kLocalWrite | kOnDemand, mr),
            0);
  program_.context().lose_memory(program_.memory(), false);
  std::uint64_t length = 0, iova = 0;
  std::uint32_t lkey = 0, rkey = 0;
  EXPECT_EQ(Call(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
                .number(UVERBS_ATTR_QUERY_MR_HANDLE, mr.mr_handle)
                .out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, lkey)
                .out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, rkey)
                .out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, length)
                .out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, iova)
                .on(program_.context()),
            0);
  EXPECT_EQ(lkey, mr.lkey);
}

TEST_F(UverbsContext, MemoryThatGoesTakesItsKeyAndNoOther) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp first, second;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 4096, kLocalWrite, first), 0);
  ASSERT_EQ(program_.reg_mr(pd, program_.memory() + 4096, 4096, kLocalWrite, second), 0);
  const auto key_of = [&](std::uint32_t handle) {
    std::uint32_t lkey = 0, rkey = 0;
    std::uint64_t length = 0, iova = 0;
    EXPECT_EQ(Call(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
                  .number(UVERBS_ATTR_QUERY_MR_HANDLE, handle)
                  .out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, lkey)
                  .out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, rkey)
                  .out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, length)
                  .out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, iova)
                  .on(program_.context()),
              0);
    return lkey;
  };
  program_.context().lose_memory(program_.memory(), false);
  EXPECT_EQ(key_of(first.mr_handle), 0u);
  EXPECT_EQ(key_of(second.mr_handle), second.lkey);
  EXPECT_EQ(destroy_mr(first.mr_handle), 0);
}

}  // namespace
}  // namespace softhca::uverbs
