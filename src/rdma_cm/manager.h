// The kernel's side of /dev/infiniband/rdma_cm: identifiers and their commands (ucma), and the
// communication manager that speaks with those of other hosts, Linux among them, in management
// datagrams (IBTA 12; host-door contract 8).
//
// No lock and no thread: who calls has the device to himself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "rdma_cm/channel.h"
#include "rdma_cm/identifier.h"
#include "rdma_cm/management_port.h"
#include "uverbs/user_memory.h"

namespace softhca::rdma_cm {

/// 0, or a number of errno.h.
using Errno = int;

/// The port numbers of all programs, which share a host as far as they know.
class PortNumbers {
 public:
  virtual ~PortNumbers() = default;
  /// For who is reached at `own`. False: somebody else has it.
  virtual bool claim(std::uint16_t port_space, std::uint16_t port, const driver::Gid& own) = 0;
  virtual void release(std::uint16_t port_space, std::uint16_t port) = 0;
  /// The address of who has it.
  virtual std::optional<driver::Gid> find(std::uint16_t port_space, std::uint16_t port) = 0;
};

class Manager {
 public:
  /// Programs end one listener and begin the next (perftest does), and a peer may be faster. Within
  /// this time nobody says that there is no such service: the peer asks again.
  static constexpr util::Duration kListenAgain = std::chrono::seconds(3);

  /// A device, whose GID table says which addresses it has: those of RoCE v2.
  struct Port {
    uverbs::Device& device;
    std::uint64_t node_guid = 0;  ///< as sysfs has it
  };
  struct Options {
    PortNumbers& port_numbers;
    /// Whether an address is of this network, as far as is known, or of this machine.
    std::function<bool(const driver::Gid&)> is_member;
    std::function<bool(const SocketAddress&)> is_local;
    /// Asks the network for an address: is_member() may know it afterwards. Empty: it knows all.
    std::function<void(const driver::Gid&)> ask = {};
    /// The path to a peer, as ib_mtu. Empty: 4096 bytes.
    std::function<std::uint8_t(const driver::Gid& to)> path_mtu = {};
    /// A peer's process has ended, and had no time to say so. Empty: nobody knows.
    std::function<bool(const driver::Gid&)> is_gone = {};
    std::function<util::Time()> clock = util::monotonic_now;
  };
  /// @pre `ports` has one at least; the first one is used where nothing speaks for another
  static util::Result<std::unique_ptr<Manager>> create(std::span<const Port> ports,
                                                       const uverbs::UserMemory& memory,
                                                       Options options);
  ~Manager();

  util::Result<Channel*> open();
  Channel* find_channel(std::uint64_t device, std::uint64_t inode) const;
  /// write() on a channel: 0, or an errno. EAGAIN: an event was asked for and there is none.
  /// `other`: the channel behind a descriptor.
  Errno serve(Channel& channel, std::uint64_t address, std::size_t size,
              const std::function<Channel*(int)>& other);
  /// Sends again what was not answered.
  void tick();
  /// When tick() has something to do, if nothing comes before.
  util::Time next_tick() const;
  /// The channels that nobody has open any more, and what belongs to them.
  void drop_closed();
  /// The program ends: peers are told.
  void disconnect_all();

 private:
  struct Command;
  using Bytes = std::span<const std::byte>;
  using Id = Identifier;

  Manager(const uverbs::UserMemory& memory, Options options)
      : memory_(memory), options_(std::move(options)) {}

  // commands.cc
  Errno create_id(Channel& channel, Bytes in);
  Errno destroy_id(Channel& channel, Bytes in);
  Errno bind(Channel& channel, Bytes in);
  Errno resolve_addr(Channel& channel, Bytes in);
  Errno resolve_route(Channel& channel, Bytes in);
  Errno query(Channel& channel, Bytes in);
  Errno write_event(Channel& channel, Bytes in);
  Errno connect(Channel& channel, Bytes in);
  Errno listen(Channel& channel, Bytes in);
  Errno accept(Channel& channel, Bytes in);
  Errno reject(Channel& channel, Bytes in);
  Errno disconnect(Channel& channel, Bytes in);
  Errno init_qp_attr(Channel& channel, Bytes in);
  Errno get_event(Channel& channel, Bytes in);
  Errno set_option(Channel& channel, Bytes in);
  Errno notify(Channel& channel, Bytes in);
  Errno migrate_id(Channel& channel, Bytes in);
  // multicast.cc
  Errno join_ip_multicast(Channel& channel, Bytes in);
  Errno join_multicast(Channel& channel, Bytes in);
  Errno leave_multicast(Channel& channel, Bytes in);
  Errno join(Channel& channel, std::uint32_t number, std::uint64_t uid, const SocketAddress& group,
             std::uint64_t response);
  Id* find(const Channel& channel, std::uint32_t number);
  // shared_ports.cc
  Errno take_port(Id& id);
  void leave_port(Id& id);
  Id* owner_beside(const Id& id, bool in_its_way) const;
  std::uint32_t drop_events(Id& id);
  void erase(std::uint32_t number);
  template <class T>
  Errno answer(std::uint64_t address, const T& value) {
    return memory_.write(address, std::as_bytes(std::span(&value, 1))) ? 0 : EFAULT;
  }
  /// Ours, if it is.
  std::optional<LocalAddress> find_local(const driver::Gid& gid) const;
  /// From where messages of a port go to `peer`.
  LocalAddress local_for(const driver::Gid& peer, unsigned port) const;
  std::uint64_t guid_of(const Id& id) const { return ports_[id.local.port].node_guid; }
  std::optional<driver::Gid> resolve(const Id& id) const;
  bool is_to_this_machine(const Id& id) const;
  driver::Gid source_of(const Id& id) const;
  driver::Gid target_of(const Id& id) const;
  /// Its destination is known. Tells the program.
  Errno be_resolved(Id& id, const driver::Gid& peer);
  void ask(Id& id);
  void wait_for_address(Id& id, util::Time now);
  std::uint8_t path_mtu(const driver::Gid& to) const {
    return options_.path_mtu ? options_.path_mtu(to) : kMtu4096;
  }

  // messages.cc
  void handle_mad(const Mad& mad, const driver::Gid& from, unsigned port);
  void handle_request(const Mad& mad, const driver::Gid& from, unsigned port);
  void handle_reply(const Mad& mad);
  void handle_mra(const Mad& mad);
  void handle_ready(const Mad& mad);
  void handle_reject(const Mad& mad);
  void handle_disconnect(const Mad& mad, const driver::Gid& from, unsigned port);
  void handle_disconnected(const Mad& mad);
  void handle_sidr_request(const Mad& mad, const driver::Gid& from, unsigned port);
  void handle_sidr_reply(const Mad& mad);
  Id& accept_from(const Mad& mad, const driver::Gid& from, unsigned port, Id& listener,
                  Bytes private_data);
  Id* find_listener(std::uint64_t service, unsigned port, const driver::Gid& to) const;
  bool was_just_left(std::uint64_t service) const;
  Id* by_local(std::uint32_t comm_id);
  Id* by_remote(std::uint32_t comm_id, const driver::Gid& from);
  void send_request(Id& id, const rdma_ucm_conn_param& param);
  void send_reply(Id& id, const rdma_ucm_conn_param& param);
  void send_mra(const Id& id);
  void send_ready(Id& id);
  void send_reject(Id& id, std::uint16_t reason, Bytes private_data);
  void send_disconnect(Id& id);
  void send_sidr_request(Id& id, const rdma_ucm_conn_param& param);
  void send_sidr_reply(Id& id, std::uint8_t status, const rdma_ucm_conn_param& param);
  void send(const Mad& mad, const LocalAddress& from, const driver::Gid& to);
  void send(const Mad& mad, const Id& id) { send(mad, id.local, *id.peer); }
  /// Until it is answered.
  void repeat(Id& id, const Mad& mad);
  void repeat_again(Id& id, util::Time now);
  void look_for_the_gone(util::Time now);
  /// A connection has ended. Tells the program now, and again when its numbers are free.
  void end_connection(Id& id);
  static void settle(Id& id) { id.repeated = {}; }

  Event event_of(const Id& id, EventType type, std::int32_t status = 0) const;
  void tell(const Id& id, EventType type, std::int32_t status = 0);
  void tell_connection(const Id& id, EventType type, std::int32_t status, Bytes private_data);
  Id& make(Channel& channel);

  const uverbs::UserMemory& memory_;
  Options options_;
  /// One of Options, with its QP1.
  struct OpenPort {
    uverbs::Device& device;
    std::uint64_t node_guid;
    std::unique_ptr<ManagementPort> management;
  };
  std::vector<OpenPort> ports_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::map<std::uint32_t, std::unique_ptr<Id>> ids_;
  std::vector<Membership> memberships_;
  const std::function<Channel*(int)>* other_ = nullptr;
  std::uint32_t last_number_ = 0;
  std::uint32_t comm_id_base_ = 0;
  std::uint16_t last_port_ = 0;
  std::map<std::uint64_t, util::Time> left_;  ///< services that were listened for, until then
  util::Time looked_for_gone_{};
};

}  // namespace softhca::rdma_cm
