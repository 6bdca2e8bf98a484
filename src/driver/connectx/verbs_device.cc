#include "driver/connectx/verbs_device.h"

#include <bit>
#include <utility>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/datagram.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/queue_pair.h"
#include "driver/connectx/shared_receive_queue.h"
#include "driver/connectx/verbs_events.h"
#include "driver/connectx/verbs_limits.h"
#include "driver/pci.h"

namespace softhca::driver::connectx {

namespace {

/// Backends for the objects of this driver: each holds the driver's object.
struct VerbsPd final : verbs::PdBackend {
  explicit VerbsPd(std::unique_ptr<ProtectionDomain> made) : pd(std::move(made)) {}
  util::Result<void> destroy() override { return pd->destroy(); }
  std::unique_ptr<ProtectionDomain> pd;
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
  void arm(bool solicited_only) override { cq->arm(solicited_only); }
  util::Result<void> destroy() override { return cq->destroy(); }
  std::unique_ptr<CompletionQueue> cq;
};

struct VerbsSrq final : verbs::SrqBackend {
  explicit VerbsSrq(std::unique_ptr<SharedReceiveQueue> made) : srq(std::move(made)) {}
  std::uint32_t number() const override { return srq->rmpn(); }
  std::size_t post(std::span<const ReceiveRequest> requests, PostStatus& status) override {
    status = PostStatus::kOk;
    std::size_t posted = 0;
    for (; posted < requests.size(); ++posted) {
      status = srq->post(requests[posted]);
      if (status != PostStatus::kOk) break;
    }
    return posted;
  }
  util::Result<void> arm_limit(unsigned limit) override { return srq->arm_limit(limit); }
  util::Result<void> destroy() override { return srq->destroy(); }
  std::unique_ptr<SharedReceiveQueue> srq;
};

ProtectionDomain& own(verbs::PdBackend& pd) { return *static_cast<VerbsPd&>(pd).pd; }

/// Wraps `make(object)` in the backend `From`, as a `To`.
template <class To, class From, class Result>
util::Result<std::unique_ptr<To>> wrap(Result&& made) {
  if (!made) return tl::unexpected(made.error());
  return std::unique_ptr<To>(std::make_unique<From>(std::move(*made)));
}

class VerbsDevice final : public verbs::DeviceBackend {
 public:
  VerbsDevice(Host& host, std::unique_ptr<Hca> hca) : host_(host), hca_(std::move(hca)) {
    describe();
  }

  const verbs::DeviceAttributes& attributes() const override { return attributes_; }
  Host& host() override { return host_; }
  util::Result<bool> link_is_up() override { return hca_->link_is_up(); }
  util::Result<void> set_gid(std::uint8_t index, const Gid& gid) override {
    return hca_->set_roce_address(index, {.gid = gid, .mac = hca_->mac()});
  }

  util::Result<std::unique_ptr<verbs::PdBackend>> allocate_pd() override {
    return wrap<verbs::PdBackend, VerbsPd>(ProtectionDomain::create(*hca_));
  }
  util::Result<std::unique_ptr<verbs::MrBackend>> register_memory(verbs::PdBackend& pd,
                                                                  std::span<std::byte> memory,
                                                                  MemoryAccess access) override {
    return wrap<verbs::MrBackend, VerbsMr>(MemoryKey::register_memory(own(pd), memory, access));
  }
  util::Result<std::unique_ptr<verbs::CqBackend>> create_cq(
      const verbs::CqBackendOptions& options) override {
    return wrap<verbs::CqBackend, VerbsCq>(
        CompletionQueue::create(*hca_, {.entries = options.entries}));
  }
  util::Result<std::unique_ptr<verbs::SrqBackend>> create_srq(
      verbs::PdBackend& pd, const verbs::SrqBackendOptions& options) override {
    return wrap<verbs::SrqBackend, VerbsSrq>(SharedReceiveQueue::create(
        own(pd), {.requests = options.requests, .pieces = options.pieces}));
  }
  util::Result<std::unique_ptr<verbs::QpBackend>> create_qp(
      verbs::PdBackend& pd, const verbs::QpBackendOptions& options) override;
  util::Result<AddressForm> make_address(verbs::PdBackend& pd, const verbs::Path& path) override;

  util::Result<std::optional<verbs::AsyncEvent>> poll_event() override;
  std::optional<std::uint32_t> poll_completion_event() override;
  void wait_completion_event(util::Time until) override;
  util::Result<void> close() override { return hca_->close(); }

 private:
  void describe();

  Host& host_;
  std::unique_ptr<Hca> hca_;
  verbs::DeviceAttributes attributes_;
};

constexpr std::uint32_t kPiecesMax = 30;  ///< room in a WQE of 512 bytes, except for atomics

void VerbsDevice::describe() {
  using spec::hca_cap;
  const auto caps = hca_->capabilities();
  const auto count = [&](auto field) { return std::uint32_t{1} << caps.get(field); };
  const auto& card = card_of(read_pci_id(host_).device);
  attributes_ = {.model = std::string(card.name),
                 .firmware = hca_->firmware_version(),
                 .mac = hca_->mac(),
                 .max_message = std::uint64_t{1} << caps.get(hca_cap::log_max_msg),
                 .max_mtu = 4096,
                 .max_qps = count(hca_cap::log_max_qp),
                 .max_cqs = count(hca_cap::log_max_cq),
                 .max_mrs = count(hca_cap::log_max_mkey),
                 .max_srqs = count(hca_cap::log_max_rmp),
                 .max_requests = count(hca_cap::log_max_qp_sz),
                 .max_pieces = kPiecesMax,
                 .max_cq_entries = count(hca_cap::log_max_cq_sz),
                 .max_reads = count(hca_cap::log_max_ra_req_qp),
                 .limitations = card.limitations};
}

util::Result<std::unique_ptr<verbs::QpBackend>> VerbsDevice::create_qp(
    verbs::PdBackend& pd, const verbs::QpBackendOptions& options) {
  using spec::service_type;
  const auto service = options.type == verbs::QpType::kRc   ? service_type::RC
                       : options.type == verbs::QpType::kUc ? service_type::UC
                                                            : service_type::UD;
  const auto& capacity = options.capacity;
  auto* const srq = static_cast<VerbsSrq*>(options.srq);
  auto made = QueuePair::create(
      own(pd),
      {.send_cq = *static_cast<VerbsCq&>(options.send_cq).cq,
       .receive_cq = *static_cast<VerbsCq&>(options.receive_cq).cq,
       .send = {.requests = capacity.send_requests,
                .pieces = capacity.send_pieces,
                .inline_size = capacity.inline_size},
       .receive = {.requests = capacity.receive_requests, .pieces = capacity.receive_pieces},
       .srq = srq == nullptr ? nullptr : srq->srq.get(),
       .service = service});
  if (!made) return tl::unexpected(made.error());
  return std::unique_ptr<verbs::QpBackend>(std::move(*made));
}

util::Result<AddressForm> VerbsDevice::make_address(verbs::PdBackend&, const verbs::Path& path) {
  return AddressVector({.gid = path.gid,
                        .mac = path.mac,
                        .source_gid_index = path.source_gid_index,
                        .hop_limit = path.hop_limit,
                        .traffic_class = path.traffic_class,
                        .priority = path.service_level,
                        .flow_label = path.flow_label,
                        .udp_source_port = path.udp_source_port})
      .form();
}

util::Result<std::optional<verbs::AsyncEvent>> VerbsDevice::poll_event() {
  host_.progress();
  auto event = hca_->poll_event();
  if (!event) return tl::unexpected(event.error());
  if (!*event) return std::optional<verbs::AsyncEvent>();
  return std::optional(translate_event(**event));
}

std::optional<std::uint32_t> VerbsDevice::poll_completion_event() {
  auto* cq = hca_->poll_completion_event();
  if (cq == nullptr) {
    host_.progress();
    cq = hca_->poll_completion_event();
  }
  if (cq == nullptr) return std::nullopt;
  return cq->cqn();
}

void VerbsDevice::wait_completion_event(util::Time until) {
  auto& queue = hca_->completion_events();
  queue.arm();
  host_.wait_interrupt(queue.vector(), until);
}

}  // namespace

util::Result<verbs::Device> open_verbs(Host& host, const Hca::Options& options) {
  auto hca = Hca::open(host, options);
  if (!hca) return tl::unexpected(hca.error());
  return verbs::Device(std::make_unique<VerbsDevice>(host, std::move(*hca)));
}

}  // namespace softhca::driver::connectx
