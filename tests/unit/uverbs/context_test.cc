// One open device file (kernel interface 3.2, 4): methods, the port, events, handles.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/datagram.h"
#include "driver/connectx/queue_pair.h"
#include "uverbs/abi.h"
#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

class UverbsContext : public testing::Test {
 protected:
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
  std::uint32_t cq = 0;
  program_.context().report_gid_change();
  EXPECT_EQ(types_in(own), Types{kGidChange});
  EXPECT_EQ(types_in(imported), Types{kGidChange}) << "of no object";
  ASSERT_EQ(program_.create_cq(page, {}, cq), 0);
  ASSERT_EQ(program_.create_cq(page, {.begin = 4096, .events = imported}, cq), 0);
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
  EXPECT_EQ(program_.create_cq(page, {.begin = 8192, .events = channel.fd}, cq), EBADF);
  EXPECT_EQ(program_.create_cq(page, {.begin = 8192, .channel = own}, cq), EBADF)
      << "no completion channel";
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
  EXPECT_EQ(program_.destroy_pd(pd + 1), ENOENT);
  EXPECT_EQ(program_.destroy_mr(pd), EINVAL);
  EXPECT_EQ(program_.destroy_pd(pd), 0);
  EXPECT_EQ(program_.destroy_pd(pd), ENOENT);
}

TEST_F(UverbsContext, ObjectsThatOthersUseAreBusy) {
  const auto pd = program_.pd();
  ib_uverbs_reg_mr_resp mr;
  ASSERT_EQ(program_.reg_mr(pd, program_.memory(), 100, kLocalWrite, mr), 0);
  EXPECT_EQ(program_.destroy_pd(pd), EBUSY);
  EXPECT_EQ(program_.destroy_mr(mr.mr_handle), 0);
  EXPECT_EQ(program_.destroy_pd(pd), 0);
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
  program_.create_cq(program_.uar());
  program_.close();
  EXPECT_TRUE(program_.device().records().empty());
  // Closing the device checks the other objects.
}

}  // namespace
}  // namespace softhca::uverbs
