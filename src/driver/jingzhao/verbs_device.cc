#include "driver/jingzhao/verbs_device.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "driver/jingzhao/completion_queue.h"
#include "driver/jingzhao/memory_key.h"
#include "driver/jingzhao/queue_pair.h"

namespace softhca::driver::jingzhao {

namespace {

using verbs::AsyncEvent;
using verbs::AsyncEventType;
using verbs::Feature;
using verbs::QpAttributes;
using verbs::QpState;
using verbs::QpType;

constexpr auto kLimitations = std::to_array<verbs::Limitation>({
    {Feature::kXrc, "its services are RC, UC and UD", "JingZhao 3.2.6.1"},
    {Feature::kSharedReceiveQueues, "no command makes one", "JingZhao table 3-2-1"},
    {Feature::kReceiveLimit, "it has no shared receive queues", "JingZhao table 3-2-1"},
    {Feature::kMulticast, "no command joins a group", "JingZhao table 3-2-1"},
    {Feature::kRoceV1, "paths are MAC and IP addresses", "JingZhao 3.2.6.1"},
    {Feature::kSolicited, "the bits C, S and E of a request are unused", "JingZhao 3.4"},
});

/// Size of a port's P_Key table (docs/jingzhao.md, gap 15).
constexpr std::uint16_t kPkeys = 2;

std::uint32_t ipv4_of(const Gid& gid) { return util::load_be32(gid.bytes.data() + 12); }

/// A PD is a number that the driver allocates.
struct VerbsPd final : verbs::PdBackend {
  VerbsPd(Hca& on, std::uint32_t pd) : hca(on), number(pd) {}
  ~VerbsPd() override { (void)destroy(); }
  util::Result<void> destroy() override {
    if (std::exchange(exists, false)) hca.pds().free(number);
    return {};
  }
  Hca& hca;
  std::uint32_t number;
  bool exists = true;
};

struct VerbsMr final : verbs::MrBackend {
  explicit VerbsMr(std::unique_ptr<MemoryKey> made) : key(std::move(made)) {}
  std::uint32_t lkey() const override { return key->key(); }
  std::uint32_t rkey() const override { return key->key(); }
  util::Result<void> destroy() override { return key->destroy(); }
  std::unique_ptr<MemoryKey> key;
};

struct VerbsCq final : verbs::CqBackend {
  explicit VerbsCq(std::unique_ptr<CompletionQueue> made) : cq(std::move(made)) {}
  std::uint32_t number() const override { return cq->cqn(); }
  unsigned entries() const override { return cq->entries(); }
  std::size_t poll(std::span<Completion> out) override { return cq->poll(out); }
  /// The device treats every packet as solicited (docs/jingzhao.md).
  void arm(bool) override { cq->arm(); }
  util::Result<void> destroy() override { return cq->destroy(); }
  std::unique_ptr<CompletionQueue> cq;
};

class VerbsQp final : public verbs::QpBackend {
 public:
  VerbsQp(std::unique_ptr<QueuePair> made, QpType type, const verbs::DeviceAttributes& device,
          const Gid& gid)
      : qp_(std::move(made)), type_(type), device_(device), gid_(gid) {}

  std::uint32_t number() const override { return qp_->qpn(); }
  util::Result<void> modify(QpState from, QpState to, const QpAttributes& in) override;
  util::Result<QpState> query_state() override;
  std::size_t post_send(std::span<const SendRequest> requests, PostStatus& status) override;
  std::size_t post_receive(std::span<const ReceiveRequest> requests, PostStatus& status) override {
    status = PostStatus::kOk;
    std::size_t posted = 0;
    for (; posted < requests.size(); ++posted) {
      status = qp_->post_receive(requests[posted]);
      if (status != PostStatus::kOk) break;
    }
    return posted;
  }
  util::Result<void> attach(const Gid&) override { return util::fail("no multicast"); }
  util::Result<void> detach(const Gid&) override { return util::fail("no multicast"); }
  util::Result<void> destroy() override {
    auto done = qp_->to_reset();
    qp_ = nullptr;
    return done;
  }

 private:
  util::Result<void> go(QpState from, QpState to, const QpAttributes& in);
  util::Result<void> to_rtr(const QpAttributes& in);
  util::Result<void> to_rts(const QpAttributes& in);
  std::size_t post_datagrams(std::span<const SendRequest> requests, PostStatus& status);

  std::unique_ptr<QueuePair> qp_;
  QpType type_;
  // References, because a subnet manager or set_gid() may change them later.
  const verbs::DeviceAttributes& device_;
  const Gid& gid_;
};

Endpoint endpoint_of(const verbs::Path& path) {
  return {.mac = path.mac, .ipv4 = ipv4_of(path.gid), .lid = path.lid};
}

Changes changes_of(const QpAttributes& in) {
  Changes out;
  out.access = in.access;
  if (in.path) out.remote = endpoint_of(*in.path);
  if (in.pkey_index) out.pkey_index = static_cast<std::uint8_t>(*in.pkey_index);
  out.qkey = in.qkey;
  out.ack_timeout = in.timeout;
  out.retry_count = in.retry_count;
  out.rnr_retry = in.rnr_retry;
  out.min_rnr_timer = in.min_rnr_timer;
  return out;
}

util::Result<void> VerbsQp::to_rtr(const QpAttributes& in) {
  return qp_->to_rtr(
      {.qpn = in.destination_qpn.value_or(0),
       .psn = in.receive_psn.value_or(0),
       .at = endpoint_of(in.path.value_or(verbs::Path()))},
      {.path_mtu = in.path_mtu.value_or(4096), .min_rnr_timer = in.min_rnr_timer.value_or(0)});
}

util::Result<void> VerbsQp::to_rts(const QpAttributes& in) {
  return qp_->to_rts({.psn = in.send_psn.value_or(0),
                      .ack_timeout = in.timeout.value_or(0),
                      .retry_count = in.retry_count.value_or(0),
                      .rnr_retry = in.rnr_retry.value_or(0)});
}

util::Result<void> VerbsQp::modify(QpState from, QpState to, const QpAttributes& in) {
  if (to == QpState::kReset) return qp_->to_reset();
  if (to == QpState::kError) return qp_->to_error();
  if (in.port.value_or(1) != 1) return util::fail("JingZhao: its port is 1 (QUERY_DEV_LIM)");
  if (in.pkey_index.value_or(0) >= kPkeys) {
    return util::fail(fmt::format("JingZhao: its P_Key table has {} entries", kPkeys));
  }
  const auto before = qp_->change(changes_of(in));
  auto done = go(from, to, in);
  if (!done) qp_->restore(before);
  return done;
}

util::Result<void> VerbsQp::go(QpState from, QpState to, const QpAttributes& in) {
  if (from == to) return qp_->stay(static_cast<spec::qp_state>(to));
  if (from == QpState::kReset && to == QpState::kInit) {
    const Endpoint here{.mac = device_.mac, .ipv4 = ipv4_of(gid_), .lid = device_.lid};
    return qp_->to_init(here, in.access.value_or(RemoteAccess()), in.qkey.value_or(0),
                        static_cast<std::uint8_t>(in.pkey_index.value_or(0)));
  }
  if (from == QpState::kInit && to == QpState::kRtr) return to_rtr(in);
  if (from == QpState::kRtr && to == QpState::kRts) return to_rts(in);
  if (from == QpState::kRts && to == QpState::kSqDrain) return qp_->to_drained();
  if (from == QpState::kSqDrain && to == QpState::kRts) return qp_->from_drained();
  if (from == QpState::kSqError && to == QpState::kRts) return qp_->from_send_error();
  return util::fail(fmt::format("no command leads from {} to {}", to_string(from), to_string(to)));
}

util::Result<QpState> VerbsQp::query_state() {
  const auto state = qp_->query_state();
  if (!state) return tl::unexpected(state.error());
  // The numbers are in InfiniBand's order; those of SQE and SQD agree as well.
  return static_cast<QpState>(*state);
}

std::size_t VerbsQp::post_send(std::span<const SendRequest> requests, PostStatus& status) {
  if (type_ != QpType::kUd) return qp_->post_send(requests, status);
  return post_datagrams(requests, status);
}

[[gnu::noinline]] std::size_t VerbsQp::post_datagrams(std::span<const SendRequest> requests,
                                                      PostStatus& status) {
  status = PostStatus::kOk;
  std::size_t posted = 0;
  for (; posted < requests.size(); ++posted) {
    const auto& request = requests[posted];
    status = PostStatus::kBadRequest;
    const bool is_send =
        request.opcode == SendOpcode::kSend || request.opcode == SendOpcode::kSendWithImmediate;
    if (request.address == nullptr || !is_send) break;
    Datagram to{.to = {}, .qpn = request.remote_qpn, .qkey = request.remote_qkey};
    std::memcpy(&to.to, request.address->bytes.data(), sizeof(to.to));
    status = qp_->post_send(request, to);
    if (status != PostStatus::kOk) break;
  }
  return posted;
}

AsyncEvent translate(const Event& event) {
  using enum spec::event_type;
  switch (event.type) {
    case COMM_EST:
      return {AsyncEventType::kCommunicationEstablished, event.number};
    case SQ_DRAINED:
      return {AsyncEventType::kSqDrained, event.number};
    case CQ_ERROR:
      return {AsyncEventType::kCqError, event.number};
    case WQ_CATAS_ERROR:
      return {AsyncEventType::kQpFatal, event.number};
    case WQ_INVAL_REQ_ERROR:
      return {AsyncEventType::kQpRequestError, event.number};
    case WQ_ACCESS_ERROR:
      return {AsyncEventType::kQpAccessError, event.number};
    case PORT_CHANGE:
      return {spec::port_change_subtype(event.subtype) == spec::port_change_subtype::UP
                  ? AsyncEventType::kPortActive
                  : AsyncEventType::kPortDown,
              1};
    default:
      return {AsyncEventType::kOther, static_cast<std::uint32_t>(event.type)};
  }
}

class VerbsDevice final : public verbs::DeviceBackend {
 public:
  VerbsDevice(Host& host, std::unique_ptr<Hca> hca, const Mac& mac)
      : host_(host), hca_(std::move(hca)) {
    using L = spec::query_dev_lim_out;
    const auto limits = hca_->limits();
    const auto& options = hca_->options();
    attributes_ = {.model = "JingZhao",
                   .firmware = fmt::format("board {:016x}", hca_->board_id()),
                   .mac = mac,
                   .max_message = std::uint64_t{1} << 31,
                   .max_mtu = 128u << limits.get(L::max_mtu),  // no format: bytes
                   .max_qps = 1u << options.log_qps,
                   .max_cqs = 1u << options.log_cqs,
                   .max_mrs = 1u << options.log_mpts,
                   // One slot of a receive queue is always free.
                   .max_requests = (1u << limits.get(L::max_qp_sz)) - 1,
                   .max_pieces = limits.get(L::max_sg),
                   .max_cq_entries = 1u << limits.get(L::max_cq_sz),
                   .max_reads = 16,
                   .datagram_header = 0,
                   .limitations = kLimitations};
  }

  const verbs::DeviceAttributes& attributes() const override { return attributes_; }
  Host& host() override { return host_; }
  util::Result<bool> link_is_up() override {
    const auto port = hca_->query_port();
    if (!port) return tl::unexpected(port.error());
    attributes_.lid = port->lid;
    return port->up();
  }
  /// The device has no address table: each queue pair has its own address.
  util::Result<void> set_gid(std::uint8_t index, const Gid& gid) override {
    if (index != 0) return util::fail("JingZhao: one GID (docs/jingzhao.md, gap 15)");
    gid_ = gid;
    return {};
  }

  util::Result<std::unique_ptr<verbs::PdBackend>> allocate_pd() override {
    const auto pd = hca_->pds().allocate();
    if (!pd) return util::fail("all PDs are in use");
    return std::make_unique<VerbsPd>(*hca_, *pd);
  }
  util::Result<std::unique_ptr<verbs::MrBackend>> register_memory(verbs::PdBackend& pd,
                                                                  std::span<std::byte> memory,
                                                                  MemoryAccess access) override {
    auto key = MemoryKey::register_memory(*hca_, static_cast<VerbsPd&>(pd).number, memory, access);
    if (!key) return tl::unexpected(key.error());
    return std::make_unique<VerbsMr>(std::move(*key));
  }
  util::Result<std::unique_ptr<verbs::CqBackend>> create_cq(
      const verbs::CqBackendOptions& options) override {
    auto cq = CompletionQueue::create(*hca_, {.entries = options.entries});
    if (!cq) return tl::unexpected(cq.error());
    return std::make_unique<VerbsCq>(std::move(*cq));
  }
  util::Result<std::unique_ptr<verbs::SrqBackend>> create_srq(
      verbs::PdBackend&, const verbs::SrqBackendOptions&) override {
    return util::fail("no shared receive queues");
  }
  util::Result<std::unique_ptr<verbs::QpBackend>> create_qp(
      verbs::PdBackend& pd, const verbs::QpBackendOptions& options) override;
  util::Result<AddressForm> make_address(verbs::PdBackend&, const verbs::Path& path) override {
    const Endpoint to{.mac = path.mac, .ipv4 = ipv4_of(path.gid), .lid = path.lid};
    AddressForm form;
    static_assert(sizeof(to) <= sizeof(form.bytes) && std::is_trivially_copyable_v<Endpoint>);
    std::memcpy(form.bytes.data(), &to, sizeof(to));
    return form;
  }

  util::Result<std::optional<AsyncEvent>> poll_event() override {
    host_.progress();
    const auto event = hca_->poll_event();
    if (!event) return std::optional<AsyncEvent>();
    return std::optional(translate(*event));
  }
  std::optional<std::uint32_t> poll_completion_event() override {
    host_.progress();
    const auto* const cq = hca_->poll_completion_event();
    if (cq == nullptr) return std::nullopt;
    return cq->cqn();
  }
  void wait_completion_event(util::Time until) override {
    auto& queue = hca_->completion_events();
    queue.arm();
    host_.wait_interrupt(queue.vector(), until);
  }
  util::Result<void> close() override { return hca_->close(); }

 private:
  Host& host_;
  std::unique_ptr<Hca> hca_;
  verbs::DeviceAttributes attributes_;
  Gid gid_;
};

util::Result<std::unique_ptr<verbs::QpBackend>> VerbsDevice::create_qp(
    verbs::PdBackend& pd, const verbs::QpBackendOptions& options) {
  const auto type = options.type == QpType::kRc   ? spec::qp_type::RC
                    : options.type == QpType::kUc ? spec::qp_type::UC
                                                  : spec::qp_type::UD;
  const auto& capacity = options.capacity;
  auto qp = QueuePair::create(
      *hca_, {.send_cq = *static_cast<VerbsCq&>(options.send_cq).cq,
              .receive_cq = *static_cast<VerbsCq&>(options.receive_cq).cq,
              .type = type,
              .pd = static_cast<VerbsPd&>(pd).number,
              .requests = std::max(capacity.send_requests, capacity.receive_requests),
              .pieces = std::max(capacity.send_pieces, capacity.receive_pieces),
              .inline_size = capacity.inline_size});
  if (!qp) return tl::unexpected(qp.error());
  return std::make_unique<VerbsQp>(std::move(*qp), options.type, attributes_, gid_);
}

}  // namespace

util::Result<verbs::Device> open_verbs(Host& host, const Mac& mac) {
  auto hca = Hca::open(host);
  if (!hca) return tl::unexpected(hca.error());
  return verbs::Device(std::make_unique<VerbsDevice>(host, std::move(*hca), mac));
}

}  // namespace softhca::driver::jingzhao
