// The distribution's unmodified opensm manages a softhca subnet. It runs on its own port, in place
// of the manager in the switch, and makes the links of two JingZhao active. All requests of its
// sweeps are answered (IBTA 14.4).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "channel.h"
#include "driver/in_process_host.h"
#include "driver/jingzhao/verbs_device.h"
#include "driver/verbs/verbs.h"
#include "jingzhao/device.h"
#include "subnet/numbers.h"
#include "subnet/subnet.h"

namespace softhca::opensm {
namespace {

using namespace std::chrono_literals;
using spec::infiniband::sm_attribute;
using subnet::Agent;
using subnet::Mad;
using subnet::MadClass;
using subnet::MadRoute;
using subnet::MadStatus;
using subnet::Method;
using subnet::Smp;
using util::monotonic_now;

/// An attribute requested of a kind of node, and the responses.
struct Asked {
  Method method;
  sm_attribute attribute;
  auto operator<=>(const Asked&) const = default;
};
struct Answers {
  unsigned requests = 0, answered = 0, refused = 0;
};

/// opensm's port: an HCA whose software is at the other end of a channel. It does what a kernel
/// does with MADs (IBTA 14.2.2.1, 13.5.3.1).
class Station final : public fabric::Receiver {
 public:
  Station(fabric::Switch& network, int channel)
      : agent_({.node_guid = kNodeGuid,
                .port_guid = kPortGuid,
                .description = "opensm's",
                .capability_mask = subnet::kIsManager},
               [](std::uint8_t) {}),
        port_(network.create_port("opensm")),
        channel_(channel) {
    agent_.set_link(kPort, true);
    port_->set_receiver(this);
  }
  ~Station() override { port_->set_receiver(nullptr); }

  /// Takes what opensm sends, for a while.
  void run() {
    pollfd waits{.fd = channel_, .events = POLLIN, .revents = 0};
    for (int patience = 1; ::poll(&waits, 1, patience) == 1; patience = 0) {
      Packet packet;
      if (::recv(channel_, &packet, sizeof(packet), 0) != sizeof(packet)) break;
      handle_request(packet);
    }
    std::erase_if(waiting_, [&](const auto& one) {
      if (one.second.deadline > monotonic_now()) return false;
      auto packet = one.second.packet;
      packet.status = ETIMEDOUT;
      tell(packet);
      return true;
    });
  }
  const Agent& agent() const { return agent_; }
  /// Requests by SMP to other nodes and their responses, by kind of node.
  const std::map<Asked, Answers>& asked_of_switch() const { return of_switch_; }
  const std::map<Asked, Answers>& asked_of_adapters() const { return of_adapters_; }

  void handle_frame(const wire::Frame& frame) override {
    const auto arrived = subnet::read_mad(frame);
    if (!arrived) return;
    auto mad = arrived->mad;
    const bool directed = class_of(mad) == MadClass::SUBN_DIRECTED_ROUTE;
    if (directed && agent_.step(mad, kPort) != Agent::Hop::kHere) return;
    answer(mad, arrived->route.source.value(), arrived->route.source_qpn.value());
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}

 private:
  static constexpr std::uint8_t kPort = 1;
  struct Waiting {
    util::Time deadline;
    Packet packet;
  };

  static MadClass class_of(const Mad& mad) {
    return MadClass(util::View<Smp>(mad).get(Smp::mgmt_class));
  }
  static bool is_smp(const Mad& mad) {
    return class_of(mad) == MadClass::SUBN_DIRECTED_ROUTE ||
           class_of(mad) == MadClass::SUBN_LID_ROUTED;
  }
  static Asked asked(const Mad& mad) {
    const util::View<Smp> smp(mad);
    return {Method(smp.get(Smp::method)), sm_attribute(smp.get(Smp::attribute_id))};
  }
  /// By direct route, the switch is one hop away and an adapter two. By LID, the LID identifies the
  /// node.
  std::map<Asked, Answers>& book_of(const Packet& packet) {
    const util::View<Smp> smp(packet.mad);
    if (class_of(packet.mad) == MadClass::SUBN_DIRECTED_ROUTE) {
      return smp.get(Smp::hop_count) == 1 ? of_switch_ : of_adapters_;
    }
    return packet.lid == switch_lid_ ? of_switch_ : of_adapters_;
  }

  void handle_request(Packet& packet) {
    auto& mad = packet.mad;
    const util::MutableView<Smp> smp(mad);
    if (packet.timeout_ms != 0) {
      const auto deadline = monotonic_now() + std::chrono::milliseconds(packet.timeout_ms);
      waiting_[smp.get(Smp::transaction_id)] = {deadline, packet};
    }
    const bool directed = class_of(mad) == MadClass::SUBN_DIRECTED_ROUTE;
    const bool local = directed ? smp.get(Smp::hop_count) == 0
                                : packet.lid == agent_.lid(kPort).value() && is_smp(mad);
    if (local) {
      if (directed) (void)agent_.step(mad, kPort);
      if (!agent_.answer(mad, kPort, true)) return;
      Agent::turn_back(mad);
      return answer(mad, packet.lid, 0);
    }
    if (is_smp(mad) && packet.timeout_ms != 0) ++book_of(packet)[asked(mad)].requests;
    if (directed && smp.get(Smp::direction) == 0) smp.set(Smp::hop_pointer, 1);
    MadRoute route{agent_.lid(kPort), wire::Lid(packet.lid), subnet::kSmiQpn,
                   wire::Qpn(packet.qpn)};
    if (directed) route.source = route.destination = subnet::kPermissive;
    if (!is_smp(mad)) route.source_qpn = wire::kGsiQpn;
    wire::Frame frame;
    subnet::write_mad(mad, route, frame);
    port_->transmit(frame);
  }

  /// A MAD for software.
  void answer(const Mad& mad, std::uint16_t lid, std::uint32_t qpn) {
    const util::View<Smp> smp(mad);
    if (const auto found = waiting_.find(smp.get(Smp::transaction_id)); found != waiting_.end()) {
      note(found->second.packet, mad);
      waiting_.erase(found);
    }
    tell({.status = 0, .timeout_ms = 0, .qpn = qpn, .lid = lid, .mad = mad});
  }
  void note(const Packet& request, const Mad& mad) {
    const util::View<Smp> smp(request.mad);
    const bool local =
        class_of(mad) == MadClass::SUBN_DIRECTED_ROUTE && smp.get(Smp::hop_count) == 0;
    if (!is_smp(mad) || local) return;
    auto& entry = book_of(request)[asked(request.mad)];
    const auto status = MadStatus(util::View<Smp>(mad).get(Smp::status));
    ++(status == MadStatus::OK ? entry.answered : entry.refused);
  }
  void tell(const Packet& packet) { (void)::send(channel_, &packet, sizeof(packet), MSG_NOSIGNAL); }

  Agent agent_;
  std::unique_ptr<fabric::Port> port_;
  const int channel_;
  std::map<std::uint64_t, Waiting> waiting_;  ///< by transaction ID
  std::map<Asked, Answers> of_switch_, of_adapters_;
  std::uint16_t switch_lid_ = 0;
};

template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// A JingZhao with its driver.
struct Node {
  Node(fabric::Switch& network, unsigned number, std::function<void()> progress)
      : port(network.create_port("jingzhao" + std::to_string(number))) {
    jingzhao::DeviceOptions card;
    card.name = "jingzhao" + std::to_string(number);
    card.link = wire::Link::kInfiniband;
    card.node_guid += std::uint64_t{number} << 8;
    device = std::make_unique<jingzhao::Device>(std::move(card), *port);
    host = std::make_unique<driver::InProcessHost>(
        *device, driver::InProcessHost::Options{.progress = std::move(progress)});
  }
  void open() {
    verbs = std::make_unique<driver::verbs::Device>(
        must(driver::jingzhao::open_verbs(*host, driver::Mac())));
  }

  std::unique_ptr<fabric::Port> port;
  std::unique_ptr<jingzhao::Device> device;
  std::unique_ptr<driver::InProcessHost> host;
  std::unique_ptr<driver::verbs::Device> verbs;
};

/// The opensm process. It runs until it is stopped.
class Program {
 public:
  explicit Program(const std::filesystem::path& folder) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) throw std::runtime_error("socketpair");
    channel_ = ends[0];
    const auto guid = "0x" + [] {
      char text[17];
      std::snprintf(text, sizeof(text), "%016lx", static_cast<unsigned long>(kPortGuid));
      return std::string(text);
    }();
    const auto log = (folder / "opensm.log").string();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ::setenv("LD_PRELOAD", SOFTHCA_OPENSM_UMAD, 1);
      ::setenv(kChannelVariable, std::to_string(ends[1]).c_str(), 1);
      ::setenv("OSM_TMP_DIR", folder.c_str(), 1);
      ::setenv("OSM_CACHE_DIR", folder.c_str(), 1);
      const int out = ::open((folder / "opensm.out").c_str(), O_CREAT | O_WRONLY, 0644);
      ::dup2(out, STDOUT_FILENO);
      ::dup2(out, STDERR_FILENO);
      // One sweep per second: a heavy one first, light ones later. QoS is on, although ports with
      // one lane are not asked for their VL tables.
      ::execl(SOFTHCA_OPENSM, SOFTHCA_OPENSM, "-g", guid.c_str(), "-f", log.c_str(), "-s", "1",
              "-t", "1000", "-Q", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(channel_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  int channel() const { return channel_; }
  bool runs() {
    if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
    return pid_ > 0;
  }

 private:
  pid_t pid_ = 0;
  int channel_ = -1;
};

/// One side: what it needs to send and receive.
struct Side {
  Side(driver::verbs::Device& device, std::span<std::byte> memory)
      : pd(must(device.allocate_pd())),
        region(must(pd.register_memory(memory, driver::MemoryAccess::all()))),
        cq(must(device.create_cq())),
        qp(must(pd.create_qp({.send_cq = cq, .receive_cq = cq}))) {}
  driver::verbs::ProtectionDomain pd;
  driver::verbs::MemoryRegion region;
  driver::verbs::CompletionQueue cq;
  driver::verbs::QueuePair qp;
};

class Opensm : public testing::Test {
 protected:
  Opensm()
      : folder_(std::filesystem::temp_directory_path() /
                ("softhca-opensm-" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(folder_);
    program_.emplace(folder_);
    station_.emplace(network_, program_->channel());
    for (unsigned i = 0; i != 2; ++i) {
      nodes_.push_back(std::make_unique<Node>(network_, i, [this] { pass(); }));
    }
    for (auto& node : nodes_) node->open();
  }
  ~Opensm() override {
    for (auto& node : nodes_) node->verbs = nullptr;
    nodes_.clear();
    station_.reset();
    program_.reset();
    std::filesystem::remove_all(folder_);
  }

  void pass() {
    for (auto& node : nodes_) node->device->run(monotonic_now());
    network_.deliver(std::numeric_limits<std::size_t>::max());
  }
  /// False on timeout, or if opensm has ended.
  bool run_until(const std::function<bool()>& done, util::Duration patience) {
    const auto limit = monotonic_now() + patience;
    while (!done()) {
      if (monotonic_now() > limit || !program_->runs()) return false;
      station_->run();
      pass();
    }
    return true;
  }

  const std::filesystem::path folder_;
  fabric::Switch network_;
  subnet::Subnet subnet_{network_, false};
  std::optional<Program> program_;
  std::optional<Station> station_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

TEST_F(Opensm, MakesTheLinksOfTwoDevicesActiveAndIsAnswered) {
  ASSERT_TRUE(run_until(
      [&] {
        return std::ranges::all_of(nodes_,
                                   [](auto& node) { return must(node->verbs->link_is_up()); });
      },
      60s));
  // Further sweeps, which have nothing to change.
  (void)run_until([] { return false; }, 3s);
  EXPECT_TRUE(program_->runs());
  const auto a = nodes_[0]->verbs->attributes().lid, b = nodes_[1]->verbs->attributes().lid;
  const auto its_own = station_->agent().lid(1).value();
  EXPECT_EQ((std::set{a, b, its_own, std::uint16_t{0}}).size(), 4u) << "LIDs of their own";
  // A vendor attribute of Mellanox that opensm requests of every port.
  constexpr auto kExtendedPortInfo = sm_attribute(0xFF90);
  std::set<Asked> adapters, network;
  for (const auto& [book, into] : {std::pair(&station_->asked_of_adapters(), &adapters),
                                   {&station_->asked_of_switch(), &network}}) {
    for (const auto& [asked, count] : *book) {
      const auto what = static_cast<unsigned>(asked.attribute);
      EXPECT_EQ(count.answered + count.refused, count.requests) << std::hex << what;
      EXPECT_EQ(count.refused, asked.attribute == kExtendedPortInfo ? count.requests : 0u)
          << std::hex << what;
      if (asked.attribute != kExtendedPortInfo) into->insert(asked);
    }
  }
  using enum sm_attribute;
  using enum Method;
  EXPECT_EQ(adapters, (std::set<Asked>{{GET, NODE_DESCRIPTION},
                                       {GET, NODE_INFO},
                                       {GET, PORT_INFO},
                                       {GET, P_KEY_TABLE},
                                       {SET, PORT_INFO}}));
  EXPECT_EQ(network, (std::set<Asked>{{GET, NODE_DESCRIPTION},
                                      {GET, NODE_INFO},
                                      {GET, SWITCH_INFO},
                                      {GET, PORT_INFO},
                                      {GET, P_KEY_TABLE},
                                      {SET, SWITCH_INFO},
                                      {SET, PORT_INFO},
                                      {SET, LINEAR_FORWARDING}}));
}

TEST_F(Opensm, LetsDataPass) {
  ASSERT_TRUE(run_until(
      [&] {
        return std::ranges::all_of(nodes_,
                                   [](auto& node) { return must(node->verbs->link_is_up()); });
      },
      60s));
  std::vector<std::byte> from(5000, std::byte{7}), to(5000);
  auto send = Side(*nodes_[0]->verbs, from), receive = Side(*nodes_[1]->verbs, to);
  must(driver::verbs::connect(send.qp, receive.qp));
  const auto piece = send.region.piece(0, from.size());
  ASSERT_EQ(send.qp.post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = receive.region.address(),
                               .rkey = receive.region.rkey()}),
            driver::PostStatus::kOk);
  EXPECT_EQ(must(send.cq.wait()).status, driver::WorkStatus::kSuccess);
  EXPECT_EQ(from, to);
}

}  // namespace
}  // namespace softhca::opensm
