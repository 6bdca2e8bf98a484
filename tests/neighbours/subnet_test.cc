// Attacks of a guest on the InfiniBand subnet of its server. Subnet administration answers in the
// loop that serves all guests. --isolate has no InfiniBand links.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "driver/jingzhao/queue_pair.h"
#include "eventually.h"
#include "jingzhao_client.h"
#include "neighbours.h"
#include "spec/infiniband/mad.h"
#include "subnet/mad.h"
#include "util/endian.h"

namespace softhca::neighbours {
namespace {

using spec::infiniband::mc_member_record;
using subnet::Mad;
using subnet::MadStatus;
using subnet::Method;
using subnet::SaMad;

class SubnetNeighbours : public Neighbours {
 protected:
  // With small caches, whose making is little work.
  SubnetNeighbours()
      : Neighbours({"jingzhao,name=hostile_port,link=infiniband,icm_cache=16",
                    "jingzhao,name=honest_port,link=infiniband,icm_cache=16"},
                   {"--port=switch", "--port=switch", "--port=switch", "--port=switch",
                    "--port=switch", "--port=switch:subnet"}) {}
  std::string hostile_port() const { return socket(kFirstMore); }
  std::string honest_port() const { return socket(kFirstMore + 1); }
};
INSTANTIATE_TEST_SUITE_P(Serve, SubnetNeighbours, ::testing::Values(false),
                         [](const auto&) { return "together"; });

using McGid = std::array<std::byte, 16>;

/// A port of the subnet, and its queue pair for subnet administration.
class Member : public JingzhaoClient {
 public:
  explicit Member(const std::string& socket)
      : JingzhaoClient(socket),
        memory_(must(driver::DmaBuffer::allocate(*host, kRequests + kAnswers * kAnswer))),
        key_(must(jz::MemoryKey::of_queue(*hca, kPd, memory_))),
        answers_(must(jz::CompletionQueue::create(*hca))),
        qp_(must(jz::QueuePair::create(*hca, {.send_cq = *cq,
                                              .receive_cq = *answers_,
                                              .type = spec::jingzhao::qp_type::UD,
                                              .pd = kPd,
                                              .inline_size = 0,
                                              .gsi = true}))) {
    EXPECT_TRUE(eventually([&] { return must(hca->query_port()).up(); }));
    lid_ = must(hca->query_port()).lid;
    write_as(lid_);
  }

  std::uint16_t lid() const { return lid_; }
  /// From now on, its packets have this source LID.
  void write_as(std::uint16_t lid) {
    must(qp_->to_reset());
    must(qp_->listen({.mac = {}, .lid = lid}, kGsiQkey));
  }
  /// A request to join or leave a group, in the name of the port with `guid`.
  static Mad membership(Method method, const McGid& group, std::uint64_t guid) {
    constexpr std::uint64_t kJoin = 1u << 0 | 1u << 1 | 1u << 16;  // MGID, PortGID, JoinState
    constexpr std::uint64_t kCreate = 1u << 2 | 1u << 6 | 1u << 7 | 1u << 12 | 1u << 13;
    Mad mad{};
    const util::MutableView<SaMad> sa(mad);
    sa.set(SaMad::base_version, 1);
    sa.set(SaMad::mgmt_class, static_cast<std::uint32_t>(subnet::MadClass::SUBN_ADMINISTRATION));
    sa.set(SaMad::class_version, 2);
    sa.set(SaMad::method, static_cast<std::uint32_t>(method));
    sa.set(SaMad::attribute_id,
           static_cast<std::uint32_t>(spec::infiniband::sa_attribute::MC_MEMBER_RECORD));
    sa.set(SaMad::component_mask, method == Method::SET ? kJoin | kCreate : kJoin);
    const util::MutableView<mc_member_record> record(sa.sub(SaMad::data));
    std::ranges::copy(group, record.sub(mc_member_record::mgid).begin());
    util::store_be64(record.sub(mc_member_record::port_gid).data(), 0xfe80'0000'0000'0000);
    util::store_be64(record.sub(mc_member_record::port_gid).data() + 8, guid);
    record.set(mc_member_record::q_key, 0x0b1b);
    record.set(mc_member_record::p_key, 0xffff);
    record.set(mc_member_record::join_state, 1);
    return mad;
  }
  /// Sends the requests, and waits until they have been sent. @pre there are at most kAnswers
  void send(std::span<const Mad> mads) {
    for (std::size_t i = 0; i != mads.size(); ++i) {
      std::ranges::copy(mads[i], memory_.bytes().begin() + static_cast<std::ptrdiff_t>(i * kMad));
      const auto piece = sge(i * kMad);
      ASSERT_EQ(qp_->post_send({.opcode = driver::SendOpcode::kSend, .pieces = {&piece, 1}},
                               {.to = {.mac = {}, .lid = 1}, .qpn = 1, .qkey = kGsiQkey}),
                driver::PostStatus::kOk);
    }
    EXPECT_EQ(take(*cq, mads.size()).size(), mads.size());
  }
  /// Sends the requests, and returns how many of them succeed.
  std::size_t ask(std::span<const Mad> mads) {
    // Only now: answers to requests in its name find no receive.
    for (std::size_t i = 0; i != mads.size(); ++i) {
      const auto piece = sge(kRequests + i * kAnswer);
      EXPECT_EQ(qp_->post_receive({.id = i, .pieces = {&piece, 1}}), driver::PostStatus::kOk);
    }
    send(mads);
    std::size_t good = 0;
    for (const auto id : take(*answers_, mads.size())) {
      const util::View<SaMad> answer(memory_.bytes().subspan(kRequests + id * kAnswer, kMad));
      good += MadStatus(answer.get(SaMad::status)) == MadStatus::OK ? 1 : 0;
    }
    return good;
  }

  static constexpr std::size_t kAnswers = 16;

 private:
  static constexpr std::uint32_t kPd = 1, kGsiQkey = 0x80010000;
  static constexpr std::size_t kMad = 256, kAnswer = 512, kRequests = kAnswers * kMad;

  driver::Sge sge(std::size_t offset) const { return {memory_.iova(offset), kMad, key_->key()}; }
  /// The IDs of the next `count` completions.
  static std::vector<std::uint64_t> take(jz::CompletionQueue& from, std::size_t count) {
    std::vector<std::uint64_t> ids;
    for (const auto end = util::monotonic_now() + 20s;
         ids.size() != count && util::monotonic_now() < end;) {
      driver::Completion done;
      if (from.poll({&done, 1}) == 0) continue;
      EXPECT_EQ(done.status, driver::WorkStatus::kSuccess);
      ids.push_back(done.id);
    }
    return ids;
  }

  driver::DmaBuffer memory_;  ///< requests, then answers
  std::unique_ptr<jz::MemoryKey> key_;
  std::unique_ptr<jz::CompletionQueue> answers_;
  std::unique_ptr<jz::QueuePair> qp_;
  std::uint16_t lid_ = 0;
};

/// Port GUIDs, which follow from the places of the devices in the server's arguments.
constexpr std::uint64_t kHostileGuid = 0x025f'caff'ff00'0501, kHonestGuid = 0x025f'caff'ff00'0601;

constexpr McGid group_of(std::uint16_t number) {
  McGid gid{};
  gid[0] = std::byte{0xff};
  gid[14] = static_cast<std::byte>(number >> 8);
  gid[15] = static_cast<std::byte>(number & 0xff);
  return gid;
}

// A guest writes the source LID of its packets itself.
TEST_P(SubnetNeighbours, NoPortLeavesAGroupInTheNameOfAnother) {
  {
    Member hostile(hostile_port()), honest(honest_port());
    constexpr auto kGroup = group_of(1);
    const std::vector join = {Member::membership(Method::SET, kGroup, kHonestGuid)};
    const std::vector leave = {Member::membership(Method::DELETE, kGroup, kHonestGuid)};
    ASSERT_EQ(honest.ask(join), 1u);
    hostile.write_as(honest.lid());
    for (int i = 0; i != 50; ++i) hostile.send(leave);
    EXPECT_EQ(honest.ask(leave), 1u) << "it is a member no more";
  }
  expect_unharmed();
}

// The loop counts no work for the answers, so they must be short.
TEST_P(SubnetNeighbours, AFloodOfJoinsWithManyGroupsLeavesTimeForOthers) {
  {
    Member hostile(hostile_port());
    std::size_t made = 0;
    for (std::uint16_t first = 0; first != 1008; first += Member::kAnswers) {
      std::vector<Mad> joins;
      for (std::uint16_t i = 0; i != Member::kAnswers; ++i) {
        const auto group = group_of(static_cast<std::uint16_t>(0x1000 + first + i));
        joins.push_back(Member::membership(Method::SET, group, kHostileGuid));
      }
      made += hostile.ask(joins);
    }
    EXPECT_EQ(made, 1008u);
    std::vector<Mad> both;
    while (both.size() != Member::kAnswers) {
      for (const auto method : {Method::SET, Method::DELETE}) {
        both.push_back(Member::membership(method, group_of(1), kHostileGuid));
      }
    }
    for (int i = 0; i != 300; ++i) EXPECT_EQ(hostile.ask(both), both.size());
  }
  expect_unharmed();
}

// Each change of the port gives all queue pairs their P_Keys again: 80 units for each.
TEST_P(SubnetNeighbours, ChangesOfThePortAreWorkThatItsGuestPays) {
  {
    JingzhaoClient client(hostile_port(), {.log_qps = 13, .patience = 20s});
    client.make_bare_queue_pairs(5000);
    for (std::uint16_t i = 0; i != 40; ++i) {
      Mad mad{};
      const util::MutableView<subnet::Smp> smp(mad);
      smp.set(subnet::Smp::base_version, 1);
      smp.set(subnet::Smp::mgmt_class,
              static_cast<std::uint32_t>(subnet::MadClass::SUBN_LID_ROUTED));
      smp.set(subnet::Smp::class_version, 1);
      smp.set(subnet::Smp::method, static_cast<std::uint32_t>(Method::SET));
      smp.set(subnet::Smp::attribute_id,
              static_cast<std::uint32_t>(spec::infiniband::sm_attribute::P_KEY_TABLE));
      util::store_be16(smp.sub(subnet::Smp::data).data(),
                       static_cast<std::uint16_t>(0x8005 + i % 2));
      must(client.hca->process_mad(mad));
    }
  }
  expect_unharmed();
}

}  // namespace
}  // namespace softhca::neighbours
