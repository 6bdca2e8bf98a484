// The server's surroundings: the reader of its log, and the umask that it was started with.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "neighbours.h"
#include "os/unique_fd.h"

namespace softhca::neighbours {
namespace {

using os::UniqueFd;

class Surroundings : public ::testing::TestWithParam<bool> {
 protected:
  std::vector<std::string> options(std::vector<std::string> more = {}) const {
    if (GetParam()) more.emplace_back("--isolate");
    return more;
  }
};
SOFTHCA_WITH_AND_WITHOUT_ISOLATE(Surroundings);

// Finding 11.
TEST_P(Surroundings, ALogWithoutAReaderAndThenWithoutAnOwnerDelaysNoClient) {
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  UniqueFd reader(fds[0]);
  std::optional<UniqueFd> writer(fds[1]);
  ServedProgram server({"connectx,name=honest", "connectx,name=other"}, options({"--verbose"}),
                       writer->get());
  // The server must not block on the pipe. Other writers to the same pipe may.
  Honest honest("RDMA", rdma_writes(server.socket(0), 1));
  const auto talk = [&] {
    for (int i = 0; i < 30; ++i) LoopHca other(server.socket(1), 2, 4096);
  };
  talk();  // far more than a pipe holds
  EXPECT_TRUE(honest.advances(3, 20s)) << "the pipe is full";
  writer.reset();
  reader.reset();
  talk();
  EXPECT_TRUE(honest.advances(3, 20s)) << "the pipe has no reader";
  honest.end();
  EXPECT_TRUE(server.alive());
}

// Finding 14.
TEST_P(Surroundings, SocketsAreTheirOwnersAloneWhateverTheUmaskIs) {
  const auto before = ::umask(0);
  const ServedProgram server({"connectx", "sdxi"}, options());
  ::umask(before);
  for (const auto& path : {server.socket(0), server.socket(1), server.control()}) {
    struct stat status;
    ASSERT_EQ(::stat(path.c_str(), &status), 0) << path;
    EXPECT_EQ(status.st_mode & 0777, 0600u) << path;
  }
}

}  // namespace
}  // namespace softhca::neighbours
