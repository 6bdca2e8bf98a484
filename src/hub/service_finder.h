// Finds the processes of other machines by an address of the machine and a port number of librdmacm
// (service_note.h), and answers for this process: a port in front of a device's port. The device
// does not receive the notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "fabric/passing_port.h"
#include "hub/service_note.h"

namespace softhca::hub {

class ServiceFinder final : public fabric::PassingPort {
 public:
  /// Maximum number of services that were asked for; a further one evicts the one that was asked
  /// for longest ago.
  static constexpr std::size_t kMax = 1024;
  /// The address of this process if it has the service.
  using Owner = std::function<std::optional<wire::Gid>(const Service&)>;

  /// `mac`: the device's own. @pre `below` outlives this
  ServiceFinder(fabric::Port& below, const wire::MacAddress& mac, Owner owner)
      : PassingPort(below), mac_(mac), owner_(std::move(owner)) {}

  /// Broadcasts a question, which the process that has the service answers.
  void ask(const Service& service);
  /// The address of the process that has answered since the first ask().
  std::optional<wire::Gid> find(const Service& service) const;
  /// Services that were asked for.
  std::size_t count() const { return asked_.size(); }
  /// Forgets the answer: another process may have the service by now.
  void forget(const Service& service) { asked_.erase(service); }

 private:
  void arrive(const wire::Frame& frame, fabric::Receiver& to) override;
  void handle(const ServiceNote& note);

  const wire::MacAddress mac_;
  const Owner owner_;
  struct Asked {
    std::optional<wire::Gid> owner;
    std::uint64_t order = 0;  ///< of the last ask()
  };

  std::map<Service, Asked> asked_;
  std::uint64_t asks_ = 0;
};

}  // namespace softhca::hub
