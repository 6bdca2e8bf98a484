// A guest that writes what it likes into its work queues.
//
// The first byte of the input chooses. Even: the rest is one send WQE, decoded for one of the
// services, and a scatter list. Odd: the rest is a script for a device with an RC and a UD queue
// pair on an SRQ; each record writes bytes to a queue, moves a doorbell record, rings, lets time
// pass, or changes a QP's state. Whatever happens, the device stays in its memory, comes to rest,
// and can give the queue pairs back.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/device.h"
#include "connectx/event/completion_queue.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/qp/rdma.h"
#include "connectx/qp/send_wqe.h"
#include "connectx/queue/receive_wqe.h"
#include "fabric/switch.h"
#include "pcie/bus_master.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/wqe.h"
#include "util/log.h"

namespace {

using namespace softhca;
using namespace softhca::connectx;
using spec::connectx::ads;
using spec::connectx::qpc;

void check(bool holds) {
  if (!holds) std::abort();
}

class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return static_cast<std::uint8_t>(value);
  }
  std::uint16_t word() { return static_cast<std::uint16_t>(byte() << 8 | byte()); }
  std::span<const std::byte> take(std::size_t size) {
    const auto taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

// One WQE --------------------------------------------------------------------------------------

void fuzz_decoder(Input input) {
  constexpr std::uint32_t kQpn = 0x41;
  const SendWqeRules rules{.type = static_cast<rdma::QpType>(input.byte() % 4),
                           .qpn = rdma::Qpn(kQpn),
                           .atomics = input.byte() % 2 == 0};
  const auto bytes = input.take(kSendWqeMax);
  if (bytes.size() < kWqeUnit) return;
  std::vector<std::byte> wqe(bytes.begin(), bytes.end());
  wqe.resize(wqe.size() / kWqeUnit * kWqeUnit);
  // Else hardly any input would come further than the first two checks.
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  const util::MutableView<Ctrl> ctrl(wqe);
  ctrl.set(Ctrl::sq_number, kQpn);
  ctrl.set(Ctrl::wqe_index, 7);
  rdma::SendRequest request;
  const auto fault = decode_send_wqe(wqe, 7, rules, request);
  check(request.inline_data.size() <= wqe.size());
  check(request.sges.size() <= wqe.size() / kWqeUnit);
  check(fault != WqeFault::kNone || !(request.is_inline && !request.sges.empty()));
  check(!describe(fault).text.empty() || fault == WqeFault::kNone);

  std::vector<rdma::Sge> sges;
  decode_scatter_list(wqe, sges);
  check(sges.size() <= wqe.size() / kWqeUnit);
  check(std::ranges::none_of(sges, [](const auto& sge) { return sge.length == 0; }));
}

// A device -------------------------------------------------------------------------------------

constexpr pcie::Iova kBase = 0x100000;
constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kKey = 0x5042;

/// One page for each queue, in this order; the records are in the last.
enum Page : std::size_t { kRcRing, kUdRing, kSrqRing, kCqRing, kData, kRecords, kPages };
enum Record : std::size_t { kRcRecord, kUdRecord, kSrqRecord, kCqRecord };

class World {
 public:
  static World& get() {
    static World world;
    return world;
  }

  void run_script(Input input);

 private:
  World();
  void build();
  void tear_down();
  void step(Input& input);
  void pass_time(util::Duration time);
  std::uint32_t create_qp(spec::connectx::service_type service, Page ring, Record record);
  void connect(std::uint32_t qpn);
  template <class In, class Out, class Fill>
  std::vector<std::byte> execute(spec::connectx::command_opcode opcode, CommandHandler handler,
                                 Fill&& fill, std::span<const std::byte> tail = {});
  std::byte* page(std::size_t index) { return memory_ + kPage * index; }
  pcie::Iova address(std::size_t index) const { return kBase + kPage * index; }
  pcie::Iova record_address(std::size_t index) const { return address(kRecords) + 64 * index; }

  util::Time now_{std::chrono::seconds(1)};
  fabric::Switch network_;
  std::unique_ptr<fabric::Port> port_ = network_.create_port("fuzz");
  rdma::Mac mac_ = rdma::Mac::from_u64(0x0200'0000'0001);
  rdma::Gid gid_ = rdma::Gid::from_ipv4(0xC0A80A01);
  Device device_{{.name = "fuzz", .mac = mac_, .node_guid = 1, .clock = [this] { return now_; }},
                 *port_};
  std::byte* memory_ = static_cast<std::byte*>(std::aligned_alloc(kPage, kPages* kPage));
  std::uint32_t pd_ = 0;
  std::uint32_t uar_ = 0;
  std::uint32_t cqn_ = 0;
  std::uint32_t srqn_ = 0;
  std::array<std::uint32_t, 2> qpns_{};
};

World::World() {
  util::set_log_sink([](util::LogLevel, std::string_view) {});
  check(device_.dma().map(kBase, kPages * kPage, memory_, pcie::DmaAccess::kReadWrite).has_value());
}

template <class In, class Out, class Fill>
std::vector<std::byte> World::execute(spec::connectx::command_opcode opcode, CommandHandler handler,
                                      Fill&& fill, std::span<const std::byte> tail) {
  std::vector<std::byte> in(In::kSize + tail.size());
  std::vector<std::byte> out(Out::kSize);
  fill(util::MutableView<In>(in));
  std::ranges::copy(tail, in.begin() + In::kSize);
  const Command command{static_cast<std::uint16_t>(opcode), 0, 0, in, out};
  (void)handler(device_, command);
  return out;
}

std::array<std::byte, 8> page_list(pcie::Iova address) {
  std::array<std::byte, 8> pas;
  util::store_be64(pas.data(), address);
  return pas;
}

void World::build() {
  device_.reset();
  pcie::set_bus_master(device_, true);
  std::memset(memory_, 0, kPages * kPage);
  pd_ = device_.resources().pds().allocate()->value();
  uar_ = device_.resources().uars().allocate()->value();
  rdma::MemoryKey::Attributes key;
  key.key = rdma::MKey(kKey);
  key.pd = rdma::Pd(pd_);
  key.access = 0x1F;
  key.start = address(kData);
  key.length = kPage;
  key.pages = {address(kData)};
  device_.memory_keys().table().insert(std::move(key));
  device_.rdma().gids().set(0, {.gid = gid_, .mac = mac_, .vlan_id = {}});

  CompletionQueue::Attributes cq;
  cq.log_size = 6;
  cq.overrun_ignore = true;
  cq.queue = *device_.queue_mapper().map(
      {.size = kPage, .pas = page_list(address(kCqRing)), .dbr_addr = record_address(kCqRecord)},
      "");
  cqn_ = device_.completion_queues().create(std::move(cq))->cqn().value();

  SharedReceiveQueue::Attributes srq;
  srq.log_size = 4;
  srq.log_stride = 6;
  srq.pd = rdma::Pd(pd_);
  srq.queue = *device_.queue_mapper().map(
      {.size = 1024, .pas = page_list(address(kSrqRing)), .dbr_addr = record_address(kSrqRecord)},
      "");
  srqn_ = device_.rdma().add_srq(std::move(srq))->number().value();

  using spec::connectx::service_type;
  qpns_ = {create_qp(service_type::RC, kRcRing, kRcRecord),
           create_qp(service_type::UD, kUdRing, kUdRecord)};
  for (const auto qpn : qpns_) connect(qpn);
}

/// The RC QP takes receives from the SRQ, the UD QP has 16 of its own; both have 16 send blocks.
std::uint32_t World::create_qp(spec::connectx::service_type service, Page ring, Record record) {
  using spec::connectx::create_qp_in;
  using spec::connectx::create_qp_out;
  const auto out = execute<create_qp_in, create_qp_out>(
      spec::connectx::command_opcode::CREATE_QP, connectx::create_qp,
      [&](auto in) {
        const auto context = in.sub(create_qp_in::qpc);
        context.set(qpc::st, static_cast<std::uint32_t>(service));
        context.set(qpc::pd, pd_);
        context.set(qpc::uar_page, uar_);
        context.set(qpc::cqn_snd, cqn_);
        context.set(qpc::cqn_rcv, cqn_);
        context.set(qpc::dbr_addr, record_address(record));
        context.set(qpc::log_sq_size, 4);
        context.set(qpc::user_index, 0xFFFFFF);
        if (ring == kRcRing) {
          context.set(qpc::rq_type, 1);
          context.set(qpc::srqn_rmpn_xrqn, srqn_);
        } else {
          context.set(qpc::log_rq_size, 4);
          context.set(qpc::log_rq_stride, 2);
        }
      },
      page_list(address(ring)));
  const auto qpn = util::View<create_qp_out>(out).get(create_qp_out::qpn);
  check(qpn != 0);
  return qpn;
}

/// To RTS, connected to itself.
void World::connect(std::uint32_t qpn) {
  using In = spec::connectx::rst2init_qp_in;
  using Out = spec::connectx::rst2init_qp_out;
  using Opcode = spec::connectx::command_opcode;
  const auto fill = [&](auto in) {
    in.set(In::qpn, qpn);
    const auto context = in.sub(In::qpc);
    const auto* qp = device_.rdma().find_qp(Qpn(qpn));
    context.set(qpc::st, qp->context().get(qpc::st));
    context.set(qpc::pd, pd_);
    context.set(qpc::mtu, 1);
    context.set(qpc::remote_qpn, qpn);
    context.set(qpc::rre, 1);
    context.set(qpc::rwe, 1);
    context.set(qpc::rae, 1);
    context.set(qpc::log_msg_max, 30);
    context.set(qpc::log_rra_max, 2);
    context.set(qpc::log_sra_max, 2);
    context.set(qpc::q_key, 0x11);
    const auto path = context.sub(qpc::primary_address_path);
    std::ranges::copy(mac_.bytes, path.sub(ads::rmac).begin());
    std::ranges::copy(gid_.bytes, path.sub(ads::rgid_rip).begin());
  };
  execute<In, Out>(Opcode::RST2INIT_QP, rst2init_qp, fill);
  execute<In, Out>(Opcode::INIT2RTR_QP, init2rtr_qp, fill);
  execute<In, Out>(Opcode::RTR2RTS_QP, rtr2rts_qp, fill);
}

void World::pass_time(util::Duration time) {
  const auto end = now_ + time;
  for (int round = 0; round < 20000; ++round) {
    const auto next = device_.rdma().run(now_);
    const bool frames = network_.has_work();
    network_.deliver(256);
    if (frames || next <= now_) continue;
    if (now_ >= end) return;
    now_ = std::min(next, end);
  }
  std::abort();  // it does not come to rest
}

enum class Action : std::uint8_t {
  kSendBytes,     ///< QP, block, bytes: into the ring
  kPostSend,      ///< QP, bytes: a WQE with right index and QPN, posted and rung
  kSendCounter,   ///< QP, counter: into the record, and rung
  kReceiveBytes,  ///< place, bytes
  kReceiveCounter,
  kSharedBytes,
  kSharedCounter,
  kTime,
  kState,     ///< QP, what: to ERR, to RST, to RTS again
  kUnmapped,  ///< the memory goes away and comes back
  kCount,
};

void World::step(Input& input) {
  const auto action = static_cast<Action>(input.byte() % static_cast<unsigned>(Action::kCount));
  const auto which = input.byte();
  const std::size_t index = which % 2;
  const auto qpn = qpns_[index];
  std::byte* const ring = page(kRcRing + index) + (index == kUdRing ? 1024 : 0);
  std::byte* const record = page(kRecords) + 64 * (kRcRecord + index);
  const auto put = [](std::byte* area, std::size_t block, std::span<const std::byte> bytes) {
    const std::size_t offset = block % 16 * 64;
    std::memcpy(area + offset, bytes.data(), std::min(bytes.size(), 1024 - offset));
  };
  switch (action) {
    case Action::kSendBytes:
      return put(ring, which / 2, input.take(64));
    case Action::kPostSend: {
      const auto producer = static_cast<std::uint16_t>(util::load_be32(record + 4));
      std::array<std::byte, 128> wqe{};
      const auto bytes = input.take(wqe.size());
      std::ranges::copy(bytes, wqe.begin());
      using Ctrl = spec::connectx::wqe_ctrl_segment;
      const util::MutableView<Ctrl> ctrl(wqe);
      ctrl.set(Ctrl::wqe_index, producer);
      ctrl.set(Ctrl::sq_number, qpn);
      put(ring, producer, std::span(wqe).first(64));
      put(ring, producer + 1u, std::span(wqe).last(64));
      util::store_be32(record + 4, producer + 2u);
      return device_.rdma().doorbell(Qpn(qpn));
    }
    case Action::kSendCounter:
      util::store_be32(record + 4, input.word());
      return device_.rdma().doorbell(Qpn(qpn));
    case Action::kReceiveBytes:
      return put(page(kUdRing), which, input.take(64));
    case Action::kReceiveCounter:
      return util::store_be32(page(kRecords) + 64 * kUdRecord, input.word());
    case Action::kSharedBytes:
      return put(page(kSrqRing), which, input.take(64));
    case Action::kSharedCounter:
      return util::store_be32(page(kRecords) + 64 * kSrqRecord, input.word());
    case Action::kTime:
      return pass_time(std::chrono::microseconds(which * 16));
    case Action::kState: {
      using In = spec::connectx::qp_2err_in;
      using Out = spec::connectx::qp_2err_out;
      using Opcode = spec::connectx::command_opcode;
      const auto fill = [&](auto in) { in.set(In::qpn, qpn); };
      if (which & 2) execute<In, Out>(Opcode::QP_2ERR, qp_2err, fill);
      if (which & 4) execute<In, Out>(Opcode::QP_2RST, qp_2rst, fill);
      if (which & 8) connect(qpn);
      return;
    }
    case Action::kUnmapped:
      check(device_.dma().unmap(kBase, kPages * kPage).has_value());
      pass_time(std::chrono::microseconds(10));
      check(device_.dma()
                .map(kBase, kPages * kPage, memory_, pcie::DmaAccess::kReadWrite)
                .has_value());
      return;
    case Action::kCount:
      return;
  }
}

void World::tear_down() {
  using In = spec::connectx::destroy_qp_in;
  using Out = spec::connectx::destroy_qp_out;
  for (const auto qpn : qpns_) {
    execute<In, Out>(spec::connectx::command_opcode::DESTROY_QP, destroy_qp,
                     [&](auto in) { in.set(In::qpn, qpn); });
    check(!device_.rdma().owns(Qpn(qpn)));
  }
  pass_time(std::chrono::milliseconds(2));
  check(device_.rdma().run(now_) == util::kNever);
}

void World::run_script(Input input) {
  build();
  while (!input.empty()) step(input);
  pass_time(std::chrono::milliseconds(2));
  tear_down();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  if (data[0] % 2 == 0) {
    fuzz_decoder(Input(bytes.subspan(1)));
  } else {
    World::get().run_script(Input(bytes.subspan(1)));
  }
  return 0;
}
