#include "cm/transmitter.h"

#include "cm/connection_table.h"

namespace softhca::cm {
namespace {

/// Delay of a message that cannot be sent because the route to its receiver is not resolved yet.
constexpr auto kTryAgainAfter = std::chrono::milliseconds(300);
/// Spreads the retransmissions of many programs over time. If all came in one burst, some would be
/// dropped each time.
constexpr int kSpreadParts = 8;

}  // namespace

Transmitter::Transmitter(Network& network, Wakeup& wakeup)
    : network_(network), wakeup_(wakeup), spread_(random_number()) {}

util::Duration Transmitter::spread(util::Duration interval) {
  const auto most = interval.count() / kSpreadParts;
  return interval + util::Duration(std::uniform_int_distribution<std::int64_t>(0, most)(spread_));
}

void Transmitter::repeat(Connection& connection, const Mad& mad, util::Time now) {
  connection.exchange.repeated = {.mad = mad,
                                  .tries_left = connection.exchange.repeats_max,
                                  .interval = connection.exchange.response_timeout};
  const bool sent = send(mad, connection);
  connection.exchange.repeated.next =
      now + (sent ? spread(connection.exchange.repeated.interval) : kTryAgainAfter);
  wakeup_.at(connection.exchange.repeated.next);
}

bool Transmitter::retransmit(Connection& connection, util::Time now) {
  if (connection.exchange.repeated.tries_left == 0) return false;
  --connection.exchange.repeated.tries_left;
  connection.exchange.repeated.was_told_to_wait = false;
  (void)send(connection.exchange.repeated.mad, connection);
  connection.exchange.repeated.next = now + spread(connection.exchange.repeated.interval);
  return true;
}

void Transmitter::postpone(Connection& connection, util::Duration interval, util::Time now) {
  connection.exchange.repeated.interval = interval;
  connection.exchange.repeated.next = now + interval;
  wakeup_.at(connection.exchange.repeated.next);
}

}  // namespace softhca::cm
