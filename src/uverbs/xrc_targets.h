// XRC domains and the targets in them. Several contexts share a domain by the file that names it,
// and open each other's targets by number (Linux: ib_open_qp). A target lives in the device until
// its last opener closes it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "os/unique_fd.h"
#include "uverbs/device.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {

class XrcTarget;

/// An XRC domain of the device.
class SharedXrcDomain {
 public:
  /// `file`: names the domain; held open so that no other file gets its inode number. Invalid: the
  /// domain has no name and cannot be shared.
  SharedXrcDomain(Device& device, std::uint32_t number, os::UniqueFd file)
      : device_(device), number_(number), file_(std::move(file)) {}
  ~SharedXrcDomain();
  SharedXrcDomain(const SharedXrcDomain&) = delete;
  SharedXrcDomain& operator=(const SharedXrcDomain&) = delete;

  std::uint32_t number() const { return number_; }
  bool has_name() const { return file_.get() >= 0; }
  /// Null: there is no target of that number.
  std::shared_ptr<XrcTarget> find_target(std::uint32_t qpn) const;

 private:
  friend class XrcTarget;

  Device& device_;
  std::uint32_t number_;
  os::UniqueFd file_;
  std::unordered_map<std::uint32_t, std::weak_ptr<XrcTarget>> targets_;
};

class XrcTarget : public EventTarget {
 public:
  /// Takes over a QP that is already in the device.
  static std::shared_ptr<XrcTarget> share(Device& device, std::uint32_t qpn,
                                          std::shared_ptr<SharedXrcDomain> domain);
  ~XrcTarget() override;
  XrcTarget(const XrcTarget&) = delete;
  XrcTarget& operator=(const XrcTarget&) = delete;

  /// Delivers its events to `opener` too.
  void open(EventTarget& opener) { openers_.push_back(&opener); }
  void close(EventTarget& opener) { std::erase(openers_, &opener); }
  void handle_event(softhca::spec::connectx::event_type type) override;

  QpCondition condition;  ///< shared by all openers

 private:
  XrcTarget(Device& device, std::uint32_t qpn, std::shared_ptr<SharedXrcDomain> domain)
      : device_(device), qpn_(qpn), domain_(std::move(domain)) {}

  Device& device_;
  std::uint32_t qpn_;
  std::shared_ptr<SharedXrcDomain> domain_;
  std::vector<EventTarget*> openers_;
};

/// Runs QP_2RST and DESTROY_QP.
void destroy_qp(Device& device, std::uint32_t qpn);

}  // namespace softhca::uverbs
