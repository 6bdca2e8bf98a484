// Subnet administration (IBTA 15): nodes and their ports, paths, and multicast groups.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "subnet/mad.h"
#include "subnet/manager.h"
#include "subnet/numbers.h"
#include "util/bits.h"
#include "wire/gid.h"

namespace softhca::subnet {

class Administration {
 public:
  explicit Administration(Manager& manager);

  /// Turns a request from `source` into its response. False if there is no response to send.
  bool answer(Mad& mad, Lid source);
  /// The node behind this port is gone: removes it from its groups.
  void forget(std::uint8_t port);

  /// Returns and clears the work (util::WorkBudget) of requests whose cost depends on the MGIDs
  /// that are taken.
  std::int64_t take_work() { return std::exchange(work_, 0); }

  std::size_t groups() const { return groups_.size(); }
  struct Counters {
    std::uint64_t answered = 0;
    std::uint64_t refused = 0;
    std::uint64_t names = 0;  ///< MGIDs tried for groups that were created without one
  };
  const Counters& counters() const { return counters_; }

 private:
  using Record = spec::infiniband::mc_member_record;
  struct Request {
    Method method;
    std::uint64_t components;
    Lid source;
    std::span<std::byte, 200> data;

    bool has(unsigned component) const { return util::has_bit(components, component); }
  };
  struct Group {
    Lid lid;
    std::array<std::byte, Record::kSize> record{};    ///< attributes that all members share
    std::map<std::uint8_t, std::uint32_t> members{};  ///< join state of each member, by port of the
                                                      ///< switch
    bool for_ever = false;                            ///< kept even without members
  };
  using Groups = std::map<wire::Gid, Group>;

  MadStatus dispatch(const Request& request, std::uint16_t attribute);
  MadStatus class_port_info(const Request& request) const;
  MadStatus node_record(const Request& request) const;
  MadStatus port_info_record(const Request& request) const;
  MadStatus path_record(const Request& request) const;
  MadStatus mc_member_record(const Request& request);
  MadStatus join(const Request& request, const Manager::Node& member);
  MadStatus leave(Groups::iterator group, const Request& request, const Manager::Node& member);
  Groups::iterator create(const wire::Gid& mgid, util::View<Record> record);
  Groups::iterator erase(Groups::iterator group);
  void show(const Group& group, const Manager::Node& member, const Request& request) const;
  Lid take_lid();
  void forward(const Group& group, std::uint8_t port);
  const Manager::Node* find(std::span<const std::byte, wire::Gid::kSize> gid) const;

  Manager& manager_;
  Groups groups_;
  std::array<std::uint64_t, kMulticastLids / 64> lids_{};  ///< of groups: bit n is the n-th LID
  std::int64_t work_ = 0;                                  ///< see take_work()
  Counters counters_;
};

}  // namespace softhca::subnet
