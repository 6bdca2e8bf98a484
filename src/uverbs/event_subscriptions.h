// Subscriptions of DevX programs to device events: maps each event to its object and its
// subscribers (kernel interface 4.13).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "driver/connectx/event_queue.h"
#include "uverbs/devx_commands.h"

namespace softhca::uverbs {

/// A type of events, of one object or (without one) of the device.
struct EventSubject {
  softhca::spec::connectx::event_type type{};
  std::optional<DevxName> object;
  bool operator==(const EventSubject&) const = default;
};

class EventSubscriber {
 public:
  virtual ~EventSubscriber() = default;
  /// `eqe`: the event queue entry, 64 bytes.
  virtual void handle_event(std::span<const std::byte> eqe) = 0;
};

class EventSubscriptions {
 public:
  /// `owner`: the key for remove().
  void add(const void* owner, const EventSubject& subject,
           std::shared_ptr<EventSubscriber> subscriber) {
    all_.push_back({owner, subject, std::move(subscriber)});
  }
  /// Removes the subscribers for which `drop(subscriber)` holds.
  template <class Drop>
  void remove_if(Drop&& drop) {
    std::erase_if(all_, [&](const Subscription& one) { return drop(*one.subscriber); });
  }
  /// Removes all subscriptions of an owner.
  void remove(const void* owner);
  /// Removes the subscriptions to an object that was destroyed.
  void remove_object(const DevxName& object);
  void handle_event(const driver::connectx::Event& event) const;

 private:
  struct Subscription {
    const void* owner;
    EventSubject subject;
    std::shared_ptr<EventSubscriber> subscriber;
  };
  std::vector<Subscription> all_;
};

}  // namespace softhca::uverbs
