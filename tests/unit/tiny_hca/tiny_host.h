// Software of a tiny HCA, and the cable between two of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "tiny_hca/tiny_hca.h"

namespace softhca::tiny {

/// One end of the cable. Frames are queued by reference and cross the cable as bytes.
class Plug final : public fabric::Port {
 public:
  std::uint64_t transmit(const wire::Frame& frame) override {
    waiting.push_back(frame);
    return ++transmitted;
  }
  /// The transport only sends to the wire.
  std::uint64_t loop_back(const wire::Frame&, std::uint32_t) override { std::abort(); }
  std::uint64_t released() const override { return transmitted - waiting.size(); }
  void set_receiver(fabric::Receiver*) override {}
  bool link_up() const override { return true; }

  std::deque<wire::Frame> waiting;
  std::uint64_t transmitted = 0;
};

struct Host {
  static constexpr pcie::Iova kMemory = 0x100000;
  static constexpr pcie::Iova kSends = kMemory + 0x80000;
  static constexpr pcie::Iova kReceives = kMemory + 0x81000;
  static constexpr pcie::Iova kCq = kMemory + 0x82000;
  static constexpr pcie::Iova kRecord = kMemory + 0x83000;
  static constexpr unsigned kLogCount = 3;

  struct Completion {
    bool receive;
    std::uint32_t place;
    std::uint32_t byte_count;
    rdma::WorkStatus status;
    std::uint32_t reason;
  };

  Host(std::string name, std::uint16_t the_lid)
      : lid(the_lid), hca(std::move(name), dma, plug, lid) {
    EXPECT_TRUE(dma.map(kMemory, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
    key = *hca.create_key(
        kMemory, memory.size(),
        rdma::kLocalRead | rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite);
    cqn = *hca.create_cq({key, kCq, kLogCount});
    qpn = *hca.create_qp({.sends = {key, kSends, kLogCount},
                          .receives = {key, kReceives, kLogCount},
                          .record = kRecord,
                          .cqn = cqn});
  }

  std::byte* at(std::uint64_t offset) { return &memory[offset]; }
  void fill(std::uint64_t offset, std::size_t length, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < length; ++i) memory[offset + i] = std::byte(random());
  }

  void post_send(Opcode opcode, std::uint64_t offset, std::uint32_t length, rdma::MKey rkey = {},
                 std::uint64_t remote_offset = 0) {
    const auto entry = post(kSends, 0);
    entry.set(wqe::opcode, static_cast<std::uint32_t>(opcode));
    entry.set(wqe::signaled, 1);
    entry.set(wqe::length, length);
    entry.set(wqe::lkey, key.value());
    entry.set(wqe::rkey, rkey.value());
    entry.set(wqe::address, kMemory + offset);
    entry.set(wqe::remote_address, kMemory + remote_offset);
    hca.ring(qpn);
  }
  void post_receive(std::uint64_t offset, std::uint32_t length) {
    const auto entry = post(kReceives, 1);
    entry.set(wqe::length, length);
    entry.set(wqe::lkey, key.value());
    entry.set(wqe::address, kMemory + offset);
  }
  std::vector<Completion> poll() {
    std::vector<Completion> found;
    for (;; ++consumed) {
      const auto place = consumed % (1u << kLogCount);
      const util::View<cqe> entry(
          std::span(at(kCq - kMemory + place * cqe::kSize), std::size_t{cqe::kSize}));
      const bool ours = entry.get(cqe::lap) == (consumed >> kLogCount & 1);
      if (entry.get(cqe::valid) == 0 || !ours) break;
      EXPECT_EQ(entry.get(cqe::qpn), qpn.value());
      found.push_back({entry.get(cqe::receive) != 0, entry.get(cqe::place),
                       entry.get(cqe::byte_count), rdma::WorkStatus(entry.get(cqe::status)),
                       entry.get(cqe::reason)});
    }
    hca.consume(cqn, consumed);
    return found;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(std::size_t{1} << 20);
  pcie::DmaSpace dma;
  Plug plug;
  rdma::Lid lid;
  TinyHca hca;
  rdma::MKey key;
  Cqn cqn;
  Qpn qpn;
  std::uint32_t consumed = 0;    ///< CQEs consumed
  std::uint32_t posted[2] = {};  ///< sends and receives posted

 private:
  /// The chain does not follow memory order: place 5 n + 3 follows place n, which visits every
  /// place.
  util::MutableView<wqe> post(pcie::Iova queue, unsigned dword) {
    std::uint32_t place = 0;
    for (std::uint32_t i = 0; i != posted[dword]; ++i) place = successor(place);
    const util::MutableView<wqe> entry(
        std::span(at(queue - kMemory + place * wqe::kSize), std::size_t{wqe::kSize}));
    entry.set(wqe::next, successor(place));
    util::store_be32(at(kRecord - kMemory + 4 * dword), ++posted[dword]);
    return entry;
  }
  static std::uint32_t successor(std::uint32_t place) {
    return (5 * place + 3) % (1u << kLogCount);
  }
};

}  // namespace softhca::tiny
