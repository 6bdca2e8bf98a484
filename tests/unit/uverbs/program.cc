#include "uverbs/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace softhca::uverbs {
namespace {

constexpr std::uint64_t kFirstAddress = 4096;

}  // namespace

Program::Program(Reach reach) : port_(switch_.create_port("device")) {
  memory_ = static_cast<std::byte*>(
      ::mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  connectx::DeviceOptions options;
  options.name = "program";
  options.mac = wire::MacAddress{{std::byte{2}}};
  options.node_guid = options.mac.to_u64();
  options.clock = [this] { return now; };
  model_ = std::make_unique<connectx::Device>(std::move(options), *port_);
  host_ = std::make_unique<driver::InProcessHost>(
      *model_, driver::InProcessHost::Options{.progress =
                                                  [this] {
                                                    (void)model_->run(now);
                                                    (void)switch_.deliver(256);
                                                    now += kPerTurn;
                                                  },
                                              .clock = [this] { return now; }});
  const auto begin = reach == Reach::kAll ? kFirstAddress : memory();
  const auto size = reach == Reach::kAll ? Device::kProgramMemory - kFirstAddress : kMemory;
  EXPECT_TRUE(model_->dma().map(Device::bus_address(begin), size,
                                reinterpret_cast<std::byte*>(begin), pcie::DmaAccess::kReadWrite));
  hca_ = *driver::connectx::Hca::open(*host_);
  device_ = *Device::create(*hca_, {.gids = {{.gid = driver::Gid::from_ipv4(198, 18, 0, 1)}},
                                    .node_guid = 1,
                                    .interface_mtu = [this] { return interface_mtu; },
                                    .find_mac =
                                        [this](const driver::Gid&, driver::Mac& mac) {
                                          mac = {.bytes = {std::byte{2}}};  // its own MAC
                                          return knows_macs;
                                        },
                                    .on_member =
                                        [this](const driver::Gid& group, bool joins) {
                                          if (joins && !has_memory_for_members)
                                            throw std::bad_alloc();
                                          members.emplace_back(group, joins);
                                        }});
  context_ = open();
}

std::unique_ptr<Context> Program::open() {
  auto file = open_file();
  EXPECT_EQ(get_context(*file, false), 0);
  return file;
}

std::unique_ptr<Context> Program::open_file() {
  return std::make_unique<Context>(
      *device_, own_,
      Context::Options{.give = [](os::UniqueFd fd) { return ::dup(fd.get()); },
                       .take_back = [](int fd) { ::close(fd); },
                       .identify = [](int fd) -> std::uint64_t {
                         struct stat status{};
                         return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
                       },
                       .copy = [](int fd) { return os::UniqueFd(::dup(fd)); },
                       .made_cq = nullptr,
                       .store =
                           [this](std::uint64_t offset, std::span<const std::byte> bytes) {
                             auto& all = stored[offset];
                             if (all.size() < bytes.size()) all.resize(bytes.size());
                             std::ranges::copy(bytes, all.begin());
                             return true;
                           },
                       .wall_clock = [this] { return now.time_since_epoch(); }});
}

Program::~Program() {
  close();
  device_.reset();
  // Fails if the device has not got every object back.
  EXPECT_TRUE(hca_->close());
  hca_.reset();
  host_.reset();
  ::munmap(memory_, kMemory);
}

Errno Program::reopen(bool devx) {
  context_ = open_file();
  return get_context(*context_, devx);
}

Errno Program::get_context(Context& file, bool devx) {
  mlx5_ib_alloc_ucontext_req_v2 in{};
  in.flags = devx ? MLX5_IB_ALLOC_UCTX_DEVX : 0;
  in.max_cqe_version = 1;
  in.lib_caps = MLX5_LIB_CAP_DYN_UAR;
  mlx5_ib_alloc_ucontext_resp out{};
  return Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
      .in(UVERBS_ATTR_UHW_IN, in)
      .out(UVERBS_ATTR_UHW_OUT, out)
      .on(file);
}

std::uint32_t Program::pd() {
  std::uint32_t handle = 0;
  EXPECT_EQ(write_command(context(), IB_USER_VERBS_CMD_ALLOC_PD, std::uint64_t{0}, handle), 0);
  return handle;
}

Errno Program::reg_mr(std::uint32_t pd, std::uint64_t address, std::uint64_t size,
                      std::uint32_t access, ib_uverbs_reg_mr_resp& out) {
  struct {
    std::uint64_t response = 0, start, length, hca_va;
    std::uint32_t pd_handle, access_flags;
  } in{
      .start = address, .length = size, .hca_va = address, .pd_handle = pd, .access_flags = access};
  std::array<std::uint32_t, 3> answer{};
  const auto wrong = write_command(context(), IB_USER_VERBS_CMD_REG_MR, in, answer);
  out.mr_handle = answer[0];
  out.lkey = answer[1];
  out.rkey = answer[2];
  return wrong;
}

std::uint32_t Program::uar() {
  std::uint64_t offset = 0;
  std::uint32_t length = 0, page = 0;
  EXPECT_EQ(Call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
                .number(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0)
                .in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, std::uint32_t{MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC})
                .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset)
                .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length)
                .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page)
                .on(context()),
            0);
  EXPECT_EQ(offset, Context::page_offset(page));
  return page;
}

Errno Program::destroy_pd(std::uint32_t handle) {
  return Call(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
      .number(UVERBS_ATTR_DESTROY_PD_HANDLE, handle)
      .on(context());
}

Errno Program::destroy_mr(std::uint32_t handle) {
  return Call(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY)
      .number(UVERBS_ATTR_DESTROY_MR_HANDLE, handle)
      .on(context());
}

std::uint32_t Program::create_cq(std::uint32_t uar) {
  std::uint32_t handle = 0;
  EXPECT_EQ(create_cq(uar, {}, handle), 0);
  return handle;
}

Errno Program::create_cq(std::uint32_t uar, const CqOptions& options, std::uint32_t& handle) {
  mlx5_ib_create_cq own{};
  own.buf_addr = options.address.value_or(memory() + options.begin);
  own.db_addr = memory() + options.record;
  own.cqe_size = options.entry_size;
  own.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
  own.uar_page_index = static_cast<std::uint16_t>(uar);
  mlx5_ib_create_cq_resp numbers{};
  std::uint32_t last = 0;
  Call call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
  call.number(UVERBS_ATTR_CREATE_CQ_HANDLE, 0)
      .in(UVERBS_ATTR_CREATE_CQ_CQE, options.entries)
      .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, std::uint64_t{7})
      .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, std::uint32_t{0})
      .in(UVERBS_ATTR_CREATE_CQ_FLAGS, options.flags)
      .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, options.last != nullptr ? *options.last : last)
      .in(UVERBS_ATTR_UHW_IN, own)
      .out(UVERBS_ATTR_UHW_OUT, numbers);
  if (options.channel) call.number(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, *options.channel);
  if (options.events) call.number(UVERBS_ATTR_CREATE_CQ_EVENT_FD, *options.events);
  const auto wrong = call.on(context());
  handle = call.made(0);
  return wrong;
}

Errno Program::create_srq(std::uint32_t pd, const SrqOptions& options, std::uint32_t& handle) {
  mlx5_ib_create_srq own{};
  own.buf_addr = memory() + 16 * 4096;
  own.db_addr = memory() + options.record;
  own.flags = options.driver_flags;
  mlx5_ib_create_srq_resp numbers{};
  const std::uint32_t type = options.domain ? IB_UVERBS_SRQT_XRC : IB_UVERBS_SRQT_BASIC;
  std::uint32_t max_wr = 0, max_sge = 0;
  Call call(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
  call.number(UVERBS_ATTR_CREATE_SRQ_HANDLE, 0)
      .number(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, pd)
      .in(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, std::uint64_t{8})
      .in(UVERBS_ATTR_CREATE_SRQ_MAX_WR, std::uint32_t{15})
      .in(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, options.sges)
      .in(UVERBS_ATTR_CREATE_SRQ_LIMIT, options.limit)
      .in(UVERBS_ATTR_CREATE_SRQ_TYPE, type)
      .out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, max_wr)
      .out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, max_sge)
      .in(UVERBS_ATTR_UHW_IN, own)
      .out(UVERBS_ATTR_UHW_OUT, numbers);
  if (options.domain) call.number(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, *options.domain);
  if (options.cq) call.number(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, *options.cq);
  const auto wrong = call.on(context());
  if (options.number != nullptr) *options.number = numbers.srqn;
  handle = call.made(0);
  return wrong;
}

Errno Program::limit_srq(std::uint32_t srq, std::uint32_t limit) {
  ib_uverbs_modify_srq in{};
  in.srq_handle = srq;
  in.attr_mask = 2;  // IB_SRQ_LIMIT
  in.srq_limit = limit;
  std::uint64_t nothing = 0;
  return write_command(context(), IB_USER_VERBS_CMD_MODIFY_SRQ, in, nothing);
}

Errno Program::create_wq(std::uint32_t pd, std::uint32_t cq, const WqOptions& options,
                         std::uint32_t& handle) {
  mlx5_ib_create_wq own{};
  own.buf_addr = memory() + 8 * 4096;
  own.db_addr = memory() + options.record;
  own.rq_wqe_count = options.entries;
  own.rq_wqe_shift = 4;
  own.flags = options.driver_flags;
  std::uint32_t wr = options.entries, sge = 1, number = 0;
  Call call(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE);
  const auto wrong = call.number(UVERBS_ATTR_CREATE_WQ_HANDLE, 0)
                         .number(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, pd)
                         .number(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, cq)
                         .in(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, std::uint64_t{9})
                         .in(UVERBS_ATTR_CREATE_WQ_TYPE, std::uint32_t{0})
                         .in(UVERBS_ATTR_CREATE_WQ_MAX_WR, wr)
                         .in(UVERBS_ATTR_CREATE_WQ_MAX_SGE, sge)
                         .in(UVERBS_ATTR_CREATE_WQ_FLAGS, options.flags)
                         .out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, wr)
                         .out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, sge)
                         .out(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, number)
                         .in(UVERBS_ATTR_UHW_IN, own)
                         .on(context());
  if (options.number != nullptr) *options.number = number;
  handle = call.made(0);
  return wrong;
}

}  // namespace softhca::uverbs
