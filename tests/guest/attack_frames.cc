#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "attacks.h"
#include "os/unique_fd.h"
#include "spec/connectx/flow_table.h"

namespace softhca::guest {
namespace {

using namespace spec::connectx;  // NOLINT(google-build-using-namespace): of this file alone
using driver::connectx::Request;
using neighbours::must;

constexpr unsigned kLevels = 60, kWays = 128;
/// A flow of a lower level may have several destinations, in tables of this level or above (PRM
/// 7.11.3.3).
constexpr unsigned kFirstOfPaths = 64;

std::uint32_t create_table(Life& life, std::uint32_t level) {
  Request<create_flow_table_in> in(command_opcode::CREATE_FLOW_TABLE);
  in.sub(create_flow_table_in::flow_table_context).set(flow_table_context::level, level);
  return must(life.loop().hca().commands().execute<create_flow_table_out>(in))
      .get(create_flow_table_out::table_id);
}

/// Adds the only flow of a table: it forwards every frame `ways` times to table `next`; with `ways`
/// 0 it drops the frame.
void send_all_to(Life& life, std::uint32_t table, std::uint32_t next, unsigned ways) {
  auto& commands = life.loop().hca().commands();
  Request<create_flow_group_in> group(command_opcode::CREATE_FLOW_GROUP);
  group.set(create_flow_group_in::table_id, table);
  const auto group_id =
      must(commands.execute<create_flow_group_out>(group)).get(create_flow_group_out::group_id);
  Request<set_flow_table_entry_in> in(command_opcode::SET_FLOW_TABLE_ENTRY,
                                      ways * dest_format::kSize);
  in.set(set_flow_table_entry_in::table_id, table);
  const auto context = in.sub(set_flow_table_entry_in::flow_context);
  context.set(flow_context::group_id, group_id);
  context.set(flow_context::action,
              static_cast<std::uint32_t>(ways == 0 ? flow_action::DROP : flow_action::FWD_DEST));
  context.set(flow_context::destination_list_size, ways);
  auto list = in.all().subspan(set_flow_table_entry_in::kSize);
  for (unsigned i = 0; i != ways; ++i, list = list.subspan(dest_format::kSize)) {
    const util::MutableView<dest_format> destination(list);
    destination.set(dest_format::destination_type,
                    static_cast<std::uint32_t>(destination_type::FLOW_TABLE));
    destination.set(dest_format::destination_id, next);
  }
  must(commands.run(in));
}

/// Sends frames from another network device of this guest.
class Sender {
 public:
  explicit Sender(const std::string& netdev)
      : fd_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_ifindex = static_cast<int>(::if_nametoindex(netdev.c_str()));
    if (!fd_ || ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
      throw std::runtime_error("no frames can be sent by " + netdev);
    }
  }
  /// The same frame many times.
  unsigned send(std::span<std::byte> frame) const {
    std::array<iovec, 64> pieces;
    std::array<mmsghdr, 64> messages{};
    for (std::size_t i = 0; i != messages.size(); ++i) {
      pieces[i] = {frame.data(), frame.size()};
      messages[i].msg_hdr.msg_iov = &pieces[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int sent = ::sendmmsg(fd_.get(), messages.data(), messages.size(), 0);
    return sent < 0 ? 0 : static_cast<unsigned>(sent);
  }

 private:
  os::UniqueFd fd_;
};

/// A frame to the function, or broadcast, with the EtherType of local experiments (IEEE 802), which
/// no host handles.
std::vector<std::byte> make_frame(const driver::Mac& to, std::size_t size) {
  std::vector<std::byte> frame(size);
  std::ranges::copy(to.bytes, frame.begin());
  frame[6] = std::byte{2};
  frame[11] = std::byte{66};
  util::store_be16(frame.data() + 12, 0x88b5);
  return frame;
}

}  // namespace

void steer_through_many_tables(Life& life) {
  // A drop at the end of a long path, which each frame takes kWays times.
  auto next = create_table(life, kFirstOfPaths + kLevels);
  send_all_to(life, next, 0, 0);
  const auto lead_to_next = [&](unsigned level, unsigned ways) {
    const auto table = create_table(life, level);
    send_all_to(life, table, next, ways);
    next = table;
  };
  for (unsigned level = kLevels; level-- != 0;) lead_to_next(kFirstOfPaths + level, 1);
  for (unsigned level = kLevels; level-- != 0;)
    lead_to_next(level, level == kLevels - 1 ? kWays : 1);
  Request<set_flow_table_root_in> root(command_opcode::SET_FLOW_TABLE_ROOT);
  root.set(set_flow_table_root_in::table_id, next);
  must(life.loop().hca().commands().run(root));
  const Sender sender(life.netdev());
  auto frame = make_frame(life.loop().hca().mac(), 60);
  while (life.goes_on()) life.did(sender.send(frame));
}

void flood_with_frames(Life& life) {
  driver::Mac everybody;
  everybody.bytes.fill(std::byte{0xff});
  const Sender sender(life.netdev());
  while (life.goes_on()) {
    auto frame =
        make_frame(life.below(4) == 0 ? everybody : life.loop().hca().mac(), 60 + life.below(1400));
    life.did(sender.send(frame));
  }
}

}  // namespace softhca::guest
