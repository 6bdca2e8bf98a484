#include "datagrams.h"

#include <cstring>

namespace softhca::bad_network {
namespace {

using driver::test::must;

constexpr auto kNumberMask = (std::uint64_t{1} << 56) - 1;
constexpr std::uint64_t kPeerBits = std::uint64_t{Datagrams::kPeer} << 56;
constexpr std::uint32_t kDatagramQkey = 0x1d0c0;

}  // namespace

Datagrams::Datagrams(Fleet& fleet, std::vector<std::unique_ptr<Site>>& sites) : sites_(sites) {
  for (auto& site : sites_) {
    ends_.push_back({.qp = must(site->pd.create_qp(
                         {.type = driver::verbs::QpType::kUd,
                          .send_cq = site->sends,
                          .receive_cq = site->receives,
                          .capacity = {.send_requests = 64, .receive_requests = kReceives}}))});
    must(driver::verbs::activate(ends_.back().qp, {.qkey = kDatagramQkey}));
  }
  for (unsigned host = 0; host != fleet.size(); ++host) {
    for (auto& peer : ends_) {
      ends_[host].paths.push_back(
          must(sites_[host]->pd.make_address(path_to(driver::verbs::describe(peer.qp)))));
    }
    fill_receives(host);
  }
}

void Datagrams::fill_receives(unsigned host) {
  auto& end = ends_[host];
  for (; end.receives_posted != end.receives_done + kReceives; ++end.receives_posted) {
    const auto slot = static_cast<unsigned>(end.receives_posted % kReceives);
    const auto piece = sites_[host]->piece(Places::datagram(slot), kGrh + kDatagramMax);
    promise(end.qp.post_receive({.id = end.receives_posted | kPeerBits, .pieces = {&piece, 1}}) ==
                driver::PostStatus::kOk,
            "host {}: a receive for datagrams is refused", host);
  }
}

void Datagrams::post(unsigned host, Random& random) {
  auto& end = ends_[host];
  auto to = below(random, static_cast<unsigned>(ends_.size()) - 1);
  if (to >= host) ++to;
  const Sent sent{.id = next_,
                  .from = host,
                  .to = to,
                  .source = below(random, Places::kPatternSize - kDatagramMax),
                  .length = 1 + below(random, kDatagramMax)};
  recent_[next_ % recent_.size()] = sent;
  const auto piece = sites_[host]->piece(Places::kPattern + sent.source, sent.length);
  const auto status = end.qp.post_send({.id = end.next_send | kPeerBits,
                                        .opcode = driver::SendOpcode::kSendWithImmediate,
                                        .pieces = {&piece, 1},
                                        .immediate = next_,
                                        .address = &end.paths[to],
                                        .remote_qpn = ends_[to].qp.number(),
                                        .remote_qkey = kDatagramQkey});
  promise(status == driver::PostStatus::kOk, "host {}: a datagram is refused: {}", host,
          driver::to_string(status));
  ++next_;
  ++end.next_send;
  ++posted_;
}

void Datagrams::complete(unsigned host, const driver::Completion& done) {
  auto& end = ends_[host];
  promise((done.id & kNumberMask) == end.next_done && end.next_done != end.next_send,
          "host {}: a completion of datagram {}, and that of {} is the next", host,
          done.id & kNumberMask, end.next_done);
  promise(done.status == driver::WorkStatus::kSuccess, "host {}: a datagram ends with {}", host,
          driver::to_string(done.status));
  ++end.next_done;
  ++completed_;
}

void Datagrams::receive(unsigned host, const driver::Completion& done) {
  auto& end = ends_[host];
  promise(
      (done.id & kNumberMask) == end.receives_done && done.status == driver::WorkStatus::kSuccess,
      "host {}: receive {} of datagrams ends with {}, and {} is the next", host,
      done.id & kNumberMask, driver::to_string(done.status), end.receives_done);
  const auto slot = static_cast<unsigned>(end.receives_done++ % kReceives);
  promise(done.immediate.has_value(), "host {}: a datagram without immediate data", host);
  auto& sent = recent_[*done.immediate % recent_.size()];
  promise(sent.id == *done.immediate && sent.to == host &&
              done.source_qpn == ends_[sent.from].qp.number() &&
              done.byte_count == kGrh + sent.length,
          "host {}: datagram {} was not sent so", host, *done.immediate);
  promise(std::memcmp(sites_[host]->at(Places::datagram(slot) + kGrh),
                      sites_[sent.from]->at(Places::kPattern + sent.source), sent.length) == 0,
          "host {}: wrong bytes in datagram {} of {}", host, sent.id, sent.from);
  ++received_;
  duplicates_ += sent.arrived ? 1 : 0;
  sent.arrived = true;
  fill_receives(host);
}

}  // namespace softhca::bad_network
