#include "tiny_hca/tiny_hca.h"

#include <utility>

namespace softhca::tiny {

using hca::refuse;
using rdma::QpState;

namespace {

constexpr rdma::Pd kPd{1};
constexpr unsigned kLogCountMax = 15;
/// Work budget of one run.
constexpr std::int64_t kRunWork = 200'000;

}  // namespace

TinyHca::TinyHca(std::string name, pcie::DmaSpace& dma, fabric::Port& port, rdma::Lid lid)
    : notes_(std::move(name)),
      keys_(dma, rdma::KeyShape(0, kKeyIndexBits)),
      transport_(port, keys_, notes_, {.link = wire::Link::kInfiniband}) {
  transport_.set_link_attributes({.lid = lid});
}

// Memory keys ------------------------------------------------------------------------------------

Result<rdma::MKey> TinyHca::create_key(pcie::Iova start, std::uint64_t length,
                                       std::uint8_t access) {
  if (start + length < start) return refuse(Status::kBadKey, "4", "the range wraps");
  const auto index = key_indexes_.allocate();
  if (!index) return refuse(Status::kTooMany, "4", "all keys are in use");
  // A new key at a used index differs from the old one by its variant.
  key_variant_ = (key_variant_ + 1) & 0xFFFF;
  rdma::MemoryKey::Attributes attributes;
  attributes.key = keys_.shape().key(index->value(), key_variant_);
  attributes.pd = kPd;
  attributes.access = access;
  attributes.start = start;
  attributes.length = length;
  return keys_.insert(std::move(attributes)).key();
}

Result<void> TinyHca::destroy_key(rdma::MKey key) {
  if (keys_.find(key) == nullptr) return refuse(Status::kBadKey, "4", "no such key");
  const auto index = keys_.shape().index(key);
  keys_.erase_index(index);
  key_indexes_.free(KeyIndex(index));
  return {};
}

// Queues -----------------------------------------------------------------------------------------

hca::QueueMemory TinyHca::map(const Queue& queue, std::size_t entry_size) {
  return hca::QueueMemory::over_key(
      {.keys = &keys_, .key = queue.key, .user = {.pd = kPd, .qpn = {}}, .address = queue.address},
      std::uint64_t{entry_size} << queue.log_count);
}

Result<Cqn> TinyHca::create_cq(const Queue& queue) {
  if (queue.log_count > kLogCountMax)
    return refuse(Status::kBadQueue, "2", "log_count is above 15");
  auto* cq = cqs_.emplace(hca::PublishedRing({.log_count = queue.log_count, .stride = cqe::kSize},
                                             map(queue, cqe::kSize)));
  if (cq == nullptr) return refuse(Status::kTooMany, "2", "all CQs are in use");
  return cq->number;
}

Result<void> TinyHca::destroy_cq(Cqn cqn) {
  auto* cq = cqs_.find(cqn);
  if (cq == nullptr) return refuse(Status::kBadQueue, "2", "no such CQ");
  if (cq->users.any()) return refuse(Status::kInUse, "2", "a QP completes to the CQ");
  cqs_.erase(cqn);
  return {};
}

Result<Qpn> TinyHca::create_qp(const NewQp& made) {
  const auto log_count = made.sends.log_count;
  if (log_count > kLogCountMax || made.receives.log_count != log_count) {
    return refuse(Status::kBadQueue, "1", "log_count is above 15, or not that of both queues");
  }
  auto* cq = cqs_.find(made.cqn);
  if (cq == nullptr) return refuse(Status::kBadQueue, "1", "no such CQ");
  auto* qp = qps_.emplace(QueuePair::Parts{.sends = map(made.sends, wqe::kSize),
                                           .receives = map(made.receives, wqe::kSize),
                                           .record = {keys_.dma(), made.record},
                                           .log_count = log_count,
                                           .cq = *cq,
                                           .failing = failing_});
  if (qp == nullptr) return refuse(Status::kTooMany, "1", "all QPs are in use");
  rdma::QpAttributes attributes;
  attributes.pd = kPd;
  qp->bind(transport_.create_qp(qp->number(), rdma::QpType::kRc, attributes, {}, *qp));
  return qp->number();
}

Result<void> TinyHca::connect_qp(Qpn qpn, rdma::Lid lid, Qpn remote) {
  auto* qp = qps_.find(qpn);
  if (qp == nullptr) return refuse(Status::kBadQueue, "1", "no such QP");
  rdma::QpAttributes attributes;
  attributes.pd = kPd;
  attributes.path.global = false;
  attributes.path.dst_lid = lid;
  attributes.remote_qpn = remote;
  attributes.access_flags.remote_read = attributes.access_flags.remote_write = true;
  for (const auto state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    if (!transport_.modify(qp->rdma_qp(), state, attributes)) {
      return refuse(Status::kBadTransition, "1", "the QP is not in RESET");
    }
  }
  return {};
}

Result<void> TinyHca::destroy_qp(Qpn qpn) {
  auto* qp = qps_.find(qpn);
  if (qp == nullptr) return refuse(Status::kBadQueue, "1", "no such QP");
  transport_.destroy_qp(qp->rdma_qp());
  qps_.erase(qpn);
  return {};
}

// Doorbells and time -----------------------------------------------------------------------------

void TinyHca::ring(Qpn qpn) {
  if (auto* qp = qps_.find(qpn)) transport_.doorbell_send(qp->rdma_qp());
}

void TinyHca::consume(Cqn cqn, std::uint32_t counter) {
  if (auto* cq = cqs_.find(cqn)) cq->ring.set_consumer(counter);
}

util::Time TinyHca::run(util::Time now) {
  notes_.set_time(now);
  util::WorkBudget work(kRunWork);
  const auto next = transport_.run(now, work);
  // A QP that cannot write a completion must stop.
  const auto failed = std::exchange(failing_, {});
  for (const auto qpn : failed) {
    auto* qp = qps_.find(qpn);
    if (qp == nullptr || qp->rdma_qp().state() == QpState::kError) continue;
    transport_.fail(qp->rdma_qp(), rdma::QpEvent::kCatastrophic,
                    rdma::Reason::kCompletionQueueFailed);
  }
  return failed.empty() ? next : now;
}

}  // namespace softhca::tiny
