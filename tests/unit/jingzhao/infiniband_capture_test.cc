// Checks a capture of an InfiniBand link with third-party decoders and CRCs.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "fabric/capture.h"
#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

// IBTA 7.8: the ICRC covers the fields that do not change end to end, the VCRC the whole packet.
TEST(InfinibandCapture, EachPacketIsDecodedAndHasBothCrcsRight) {
  const auto path = (std::filesystem::temp_directory_path() /
                     ("infiniband_capture." + std::to_string(getpid()) + ".pcapng"))
                        .string();
  {
    auto capture = must(fabric::Capture::create(path, {}, [] { return std::uint64_t{1}; }));
    World world({.card = {.link = wire::Link::kInfiniband}});
    world.network().set_tap(&capture->add_tap());
    world.open();
    Side left(world.a()), right(world.b());
    connect(left, right);
    fill(left.bytes(0, 9001), 1);
    const auto piece = left.piece(0, 9001);
    for (const auto opcode : {driver::SendOpcode::kSend, driver::SendOpcode::kRdmaWrite,
                              driver::SendOpcode::kRdmaRead}) {
      right.receive(7, 0, 9001);
      ASSERT_EQ(left.qp->post_send({.id = 1,
                                    .opcode = opcode,
                                    .pieces = {&piece, 1},
                                    .remote_address = right.address(20000),
                                    .rkey = right.key->key()}),
                PostStatus::kOk);
      ASSERT_EQ(wait(world, *left.send_cq).size(), 1u);
    }
    Side sender(world.a(), {.type = spec::jingzhao::qp_type::UD});
    must(sender.qp->listen(world.a().address, kQkey));
    for (std::size_t size = 0; size != 8; ++size) {  // covers every pad count
      const auto datagram = sender.piece(0, size);
      ASSERT_EQ(sender.qp->post_send(
                    {.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&datagram, 1}},
                    {.to = world.b().address, .qpn = 77, .qkey = kQkey}),
                PostStatus::kOk);
      ASSERT_EQ(wait(world, *sender.send_cq).size(), 1u);
    }
    world.network().set_tap(nullptr);
  }
  const auto status = std::system(
      (SOFTHCA_SOURCE_DIR "/tests/unit/jingzhao/check_infiniband_capture.py " + path).c_str());
  std::filesystem::remove(path);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace softhca::jingzhao::test
