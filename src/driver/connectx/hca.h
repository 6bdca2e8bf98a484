// A running ConnectX HCA, with the objects that all its users share.
//
//   auto hca = Hca::open(host);           PRM 8.2: from the initialization segment to the port
//   ... ProtectionDomain, MemoryKey, CompletionQueue, QueuePair ...
//   (*hca)->close();                      PRM 8.3; destroy the objects first
//
// Single-threaded, like its Host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/address.h"
#include "driver/connectx/command_queue.h"
#include "driver/connectx/completion_targets.h"
#include "driver/connectx/event_queue.h"
#include "driver/connectx/pages.h"
#include "spec/connectx/caps.h"

namespace softhca::driver::connectx {

class CompletionQueue;

/// An entry of the RoCE address table: the network address of a queue pair of this port.
struct RoceAddress {
  Gid gid;
  Mac mac;
  std::optional<std::uint16_t> vlan = {};
  bool roce_v2 = true;  ///< otherwise version 1
};

class Hca {
 public:
  struct Options {
    /// MSI-X vectors and event queues for completions. Vector 0 and one more event queue are for
    /// everything else.
    unsigned completion_vectors = 1;
    /// A queue pair's send queue begins at the next multiple of this many bytes behind its receive
    /// queue: 64, or the value that the card's document requires.
    std::size_t send_queue_alignment = 64;
    /// Request events of the port. Without them a device need not monitor a link that never
    /// changes.
    bool port_events = true;
    /// Time limit of each command, and of each step of the bring-up.
    util::Duration patience = std::chrono::seconds(10);
  };

  static util::Result<std::unique_ptr<Hca>> open(Host& host, const Options& options);
  static util::Result<std::unique_ptr<Hca>> open(Host& host) { return open(host, Options()); }
  ~Hca();
  Hca(const Hca&) = delete;
  Hca& operator=(const Hca&) = delete;

  /// Stops the device and frees all its resources. Continues after an error, and returns the first
  /// one.
  /// @pre all objects made on this HCA are destroyed
  util::Result<void> close();

  // Properties ---------------------------------------------------------------------------------

  /// "12.28.2006"
  std::string firmware_version() const { return firmware_version_; }
  Mac mac() const { return mac_; }
  util::Result<bool> link_is_up();
  /// Received datagrams with a wrong Q_Key; the count stops at 65,535.
  util::Result<std::uint32_t> qkey_violations();
  /// The general capabilities in force.
  util::View<spec::hca_cap> capabilities() const {
    return util::View<spec::hca_cap>(capabilities_);
  }
  /// Atomics write the old value in the program's byte order; otherwise big-endian.
  bool atomics_in_host_order() const { return atomics_in_host_order_; }
  /// Pages of the host's memory that the device holds.
  std::size_t pages_given() const { return pages_->given(); }

  // RoCE addresses -----------------------------------------------------------------------------

  util::Result<void> set_roce_address(std::uint8_t index, const RoceAddress& address);
  util::Result<void> clear_roce_address(std::uint8_t index);

  // Events -------------------------------------------------------------------------------------

  /// The next event other than a completion: port changes, errors of queues. Page requests are
  /// served here and not returned.
  util::Result<std::optional<Event>> poll_event();
  /// The next CQ that raised an event after arm(); null if none did. `vector`: 0 is the first
  /// completion vector.
  CompletionQueue* poll_completion_event(unsigned vector = 0);
  EventQueue& events() { return *events_; }
  EventQueue& completion_events(unsigned vector = 0) { return *completion_events_.at(vector); }

  // For the objects of this folder -------------------------------------------------------------

  Host& host() { return host_; }
  CommandQueue& commands() { return *commands_; }
  const Options& options() const { return options_; }
  /// The doorbell page that all queues share.
  std::uint32_t uar() const { return uar_; }
  CompletionTargets& completion_targets() { return targets_; }
  void add_completion_queue(std::uint32_t cqn, CompletionQueue& cq) { cqs_.emplace(cqn, &cq); }
  void remove_completion_queue(std::uint32_t cqn) { cqs_.erase(cqn); }
  /// The variant byte of the next memory key. It differs from one key to the next, so that a stale
  /// key does not match a new key with the same index.
  std::uint8_t next_key_variant() { return ++key_variant_; }

 private:
  /// Progress of the bring-up, so that close() undoes exactly the steps done.
  enum class Stage : std::uint8_t { kOff, kEnabled, kInitialized };

  explicit Hca(Host& host, const Options& options) : host_(host), options_(options) {}

  // bring_up.cc, in this order
  util::Result<void> bring_up();
  util::Result<void> enable();
  util::Result<void> select_issi();
  util::Result<void> configure();
  template <class Register>
  util::Result<void> access(spec::register_id id, spec::access_register_op_mod direction,
                            util::Struct<Register>& content);
  util::Result<void> set_host_endianness();
  util::Result<void> raise_port_mtu();
  util::Result<void> set_general_capabilities();
  util::Result<void> set_atomic_capabilities();
  util::Result<void> initialize();
  util::Result<void> create_doorbells_and_events();
  util::Result<void> start_port();
  util::Result<void> query_capabilities(spec::hca_cap_type type, std::span<std::byte> out);
  util::Result<void> set_capabilities(spec::hca_cap_type type, std::span<const std::byte> image);

  Host& host_;
  Options options_;
  Stage stage_ = Stage::kOff;
  bool closed_ = true;
  std::unique_ptr<CommandQueue> commands_;
  std::unique_ptr<Pages> pages_;
  std::string firmware_version_;
  std::vector<std::byte> capabilities_;
  bool atomics_in_host_order_ = false;
  Mac mac_;
  std::uint32_t uar_ = 0;
  bool has_uar_ = false;
  std::unique_ptr<EventQueue> events_;
  std::vector<std::unique_ptr<EventQueue>> completion_events_;
  CompletionTargets targets_;
  std::unordered_map<std::uint32_t, CompletionQueue*> cqs_;
  std::uint8_t key_variant_ = 0;
};

}  // namespace softhca::driver::connectx
