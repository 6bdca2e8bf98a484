// Hubs of other machines: --join, --listen, --key-file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trunk/udp_trunk.h"
#include "util/result.h"

namespace CLI {
class App;
}

namespace softhca::run {

/// The trunk of a new hub.
struct TrunkSetup {
  trunk::UdpTrunk::Options options;
  std::string words;  ///< the user's options, to compare runs of one fabric
};

struct TrunkOptions {
  std::vector<std::string> join;
  std::string listen;    ///< empty: any port, and no hub can join this one unless it is joined
  std::string key_file;  ///< empty: the environment has the key

  /// Nothing if no trunk is wanted. Asks name servers, and reads the key. Fails if there is no key,
  /// or if others may read it.
  util::Result<std::optional<TrunkSetup>> setup(const std::string& fabric) const;
};

/// Notes in the directory of a new fabric what its later runs and its processes need to know.
util::Result<void> write_trunk_files(const std::string& directory, const TrunkSetup& setup);
/// TrunkSetup::words of the run that started the fabric; empty: it has no trunk.
std::string read_trunk_words(const std::string& directory);

inline constexpr const char* kKeyVariable = "SOFTHCA_FABRIC_KEY";

void add_trunk_options(CLI::App& command, TrunkOptions& options);

}  // namespace softhca::run
