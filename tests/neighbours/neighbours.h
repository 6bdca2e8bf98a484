// Shared by all tests of hostile neighbors: a server, an honest client that works on one device,
// and a second device for the hostile one.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "bounds.h"
#include "honest.h"
#include "loop_hca.h"
#include "server/served_program.h"

namespace softhca::neighbours {

using namespace std::chrono_literals;
using server::ServedProgram;

/// A server with or without --isolate, by the parameter.
class Neighbours : public ::testing::TestWithParam<bool> {
 protected:
  enum Device : std::size_t { kHostile, kHonest, kThird, kHostileMover, kHonestMover, kFirstMore };

  /// `more`: devices besides those of each test, from kFirstMore on. `more_options`: arguments of
  /// the server.
  explicit Neighbours(const std::vector<std::string>& more = {},
                      const std::vector<std::string>& more_options = {})
      : server_(devices_and(more), options_and(more_options)) {
    EXPECT_TRUE(honest_.advances(3, 20s) && mover_.advances(3, 20s))
        << "before anything hostile happens";
  }

  bool isolated() const { return GetParam(); }
  std::string socket(std::size_t device) const { return server_.socket(device); }
  std::string hostile() const { return socket(kHostile); }
  /// Expects that the honest clients go on, and that no turn of the server did more than
  /// `turn_max_work`. Ends the honest clients.
  void expect_unharmed(std::uint64_t turn_max_work = kTurnMaxWork);

  ServedProgram server_;
  Honest honest_{"RDMA", rdma_writes(socket(kHonest), 1), honest_server()};
  Honest mover_{"SDXI", sdxi_copies(socket(kHonestMover)), honest_server()};

 private:
  /// The process that serves the honest clients.
  pid_t honest_server() const;
  static std::vector<std::string> devices_and(const std::vector<std::string>& more);
  std::vector<std::string> options_and(std::vector<std::string> more) const;
};

/// Instantiates a fixture's tests for both kinds of server.
#define SOFTHCA_WITH_AND_WITHOUT_ISOLATE(Fixture)                                        \
  INSTANTIATE_TEST_SUITE_P(Serve, Fixture, ::testing::Bool(), [](const auto& isolated) { \
    return isolated.param ? "isolated" : "together";                                     \
  })

}  // namespace softhca::neighbours
