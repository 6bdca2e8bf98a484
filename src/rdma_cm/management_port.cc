#include "rdma_cm/management_port.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "driver/connectx/datagram.h"
#include "spec/infiniband/constants.h"
#include "spec/infiniband/transport.h"
#include "util/field.h"

namespace softhca::rdma_cm {

using driver::connectx::CompletionQueue;
using driver::connectx::MemoryKey;
using driver::connectx::ProtectionDomain;
using driver::connectx::QpState;
using driver::connectx::QueuePair;
using softhca::spec::infiniband::kGsiQkey;
using softhca::spec::infiniband::kGsiQpn;

namespace {

/// Source and destination of a datagram, from the bytes in front of it (IBTA Annex A17): a GRH, or
/// an IPv4 header in the last 20 bytes.
std::pair<driver::Gid, driver::Gid> addresses_in(std::span<const std::byte> header) {
  constexpr std::size_t kIpv4 = 20, kIpv4Source = kIpv4 + 12, kIpv4Destination = kIpv4 + 16;
  using Grh = softhca::spec::infiniband::grh;
  constexpr std::uint32_t kIpv6 = 6;
  const bool ipv4 = std::to_integer<unsigned>(header[kIpv4]) == 0x45 &&
                    util::View<Grh>(header).get(Grh::ip_version) != kIpv6;
  const auto gid_at = [&](std::size_t ipv4_place, std::size_t grh_place) {
    driver::Gid gid{};
    if (ipv4) {
      util::store_be16(gid.bytes.data() + 10, 0xffff);
      std::ranges::copy(header.subspan(ipv4_place, 4), gid.bytes.begin() + 12);
    } else {
      std::ranges::copy(header.subspan(grh_place, 16), gid.bytes.begin());
    }
    return gid;
  };
  return {gid_at(kIpv4Source, Grh::sgid.kOffset), gid_at(kIpv4Destination, Grh::dgid.kOffset)};
}

}  // namespace

util::Result<std::unique_ptr<ManagementPort>> ManagementPort::create(uverbs::Device& device,
                                                                     Handler handler) {
  std::unique_ptr<ManagementPort> port(new ManagementPort(device, std::move(handler)));
  if (auto good = port->set_up(); !good) return tl::unexpected(good.error());
  return port;
}

ManagementPort::~ManagementPort() {
  if (cq_) device_.remove_completion_target(cq_->cqn());
}

util::Result<void> ManagementPort::set_up() {
  auto& hca = device_.hca();
  memory_.resize((kReceives + kSends) * kSlot);
  auto pd = ProtectionDomain::create(hca);
  if (!pd) return tl::unexpected(pd.error());
  pd_ = *std::move(pd);
  auto key = MemoryKey::register_memory(*pd_, memory_, {});
  if (!key) return tl::unexpected(key.error());
  key_ = *std::move(key);
  auto cq = CompletionQueue::create(hca);
  if (!cq) return tl::unexpected(cq.error());
  cq_ = *std::move(cq);
  auto qp = QueuePair::create(*pd_, {.send_cq = *cq_,
                                     .receive_cq = *cq_,
                                     .send = {.requests = kSends, .pieces = 1},
                                     .receive = {.requests = kReceives, .pieces = 1},
                                     .service = softhca::spec::connectx::service_type::QP1});
  if (!qp) return tl::unexpected(qp.error());
  qp_ = *std::move(qp);
  if (auto good = qp_->activate(kGsiQkey); !good) return good;
  for (unsigned i = 0; i != kReceives; ++i) post_receive(i);
  for (unsigned i = 0; i != kSends; ++i) free_sends_.push_back(kReceives + i);
  device_.add_completion_target(cq_->cqn(), *this);
  cq_->arm();
  return {};
}

void ManagementPort::post_receive(std::uint64_t number) {
  const driver::Sge piece{.address = reinterpret_cast<std::uint64_t>(slot(number).data()),
                          .length = kSlot,
                          .lkey = key_->key()};
  (void)qp_->post_receive({.id = number, .pieces = std::span(&piece, 1)});
}

bool ManagementPort::send(const cm::Mad& mad, std::uint8_t gid_index, const driver::Gid& to) {
  if (free_sends_.empty()) drain();
  const Waiting datagram{mad, gid_index, to};
  if (!free_sends_.empty() && waiting_.empty()) return post(datagram);
  if (waiting_.size() == kWaitingMax) return false;
  waiting_.push_back(datagram);
  return true;
}

/// Whether entry `gid_index` can be the source of a datagram to `to` (IBTA Annex A17 17.4.2). The
/// entry may have lost its address since an identifier chose it.
bool ManagementPort::is_source(std::uint8_t gid_index, const driver::Gid& to) const {
  const auto* const entry = device_.gid(gid_index);
  return entry != nullptr && (!entry->roce_v2 || entry->gid.is_ipv4() == to.is_ipv4());
}

bool ManagementPort::post(const Waiting& datagram) {
  driver::Mac mac;
  if (!is_source(datagram.gid_index, datagram.to)) return false;
  if (!device_.find_mac(datagram.to, mac)) return false;
  const auto number = free_sends_.back();
  std::ranges::copy(datagram.mad, slot(number).begin());
  const driver::connectx::AddressVector vector(
      {.gid = datagram.to, .mac = mac, .source_gid_index = datagram.gid_index});
  const driver::Sge piece{.address = reinterpret_cast<std::uint64_t>(slot(number).data()),
                          .length = static_cast<std::uint32_t>(datagram.mad.size()),
                          .lkey = key_->key()};
  const auto status = qp_->post_send({.id = number,
                                      .pieces = std::span(&piece, 1),
                                      .address = &vector.form(),
                                      .remote_qpn = kGsiQpn,
                                      .remote_qkey = kGsiQkey});
  if (status != driver::PostStatus::kOk) return false;
  free_sends_.pop_back();
  return true;
}

void ManagementPort::handle_event(softhca::spec::connectx::event_type) {
  cq_->handle_event();
  drain();
  cq_->arm();
  drain();  // CQEs that preceded arming raise no event
}

void ManagementPort::drain() {
  std::array<driver::Completion, 16> all;
  bool failed = false;
  while (const auto count = cq_->poll(all)) {
    for (const auto& one : std::span(all).first(count)) {
      if (one.id >= kReceives) {
        free_sends_.push_back(one.id);
        failed |= one.status != driver::WorkStatus::kSuccess &&
                  one.status != driver::WorkStatus::kFlushed;
        continue;
      }
      const auto bytes = slot(one.id);
      const bool whole = one.status == driver::WorkStatus::kSuccess &&
                         one.byte_count == kHeader + std::tuple_size_v<cm::Mad>;
      cm::Arrival arrival;
      std::ranges::copy(bytes.subspan(kHeader, arrival.mad.size()), arrival.mad.begin());
      std::tie(arrival.from, arrival.to) = addresses_in(bytes.first(kHeader));
      if (one.status != driver::WorkStatus::kFlushed) post_receive(one.id);
      if (whole) handler_(arrival);
    }
  }
  // A failed send stops the send queue of all identifiers (IBTA 10.3.1.6). Linux's ib_mad resumes
  // it, too.
  if (failed) (void)qp_->modify(QpState::kSqError, QpState::kRts, {});
  while (!free_sends_.empty() && !waiting_.empty()) {
    (void)post(waiting_.front());
    waiting_.pop_front();
  }
}

}  // namespace softhca::rdma_cm
