// A capture and the limits of its files, its disk and its reader.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "capture_file.h"
#include "fabric/capture.h"
#include "recorder.h"
#include "util/clock.h"
#include "util/log.h"

namespace softhca::fabric {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr auto kSize = Capture::kFileSizeMin;

class CaptureLimits : public testing::Test {
 protected:
  CaptureLimits() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    util::set_log_sink([this](auto, auto text) { log_ += std::string(text) + "\n"; });
  }
  ~CaptureLimits() override {
    capture_.reset();
    util::set_log_sink(nullptr);
    std::filesystem::remove_all(directory_);
  }

  void create(const std::string& path, Capture::Limits limits) {
    auto made = Capture::create(path, limits, [this] { return ++now_; });
    ASSERT_TRUE(made) << made.error().message;
    capture_ = *std::move(made);
    tap_ = &capture_->add_tap();
    tap_->handle_port(0, "port-a", wire::Link::kEthernet);
    tap_->handle_port(1, "port-b", wire::Link::kEthernet);
  }
  /// Sends the next frame. Its payload begins with its number.
  void frame(std::uint32_t port, std::size_t size = 1000) {
    auto text = std::to_string(next_++) + " ";
    text.resize(size, 'x');
    tap_->handle_frame(port, frame_of(kA, kB, text));
  }
  static unsigned number_of(const CapturedPacket& packet) {
    return static_cast<unsigned>(std::stoul(packet.text));
  }
  std::string file(const std::string& name) const { return content_of(directory_ / name); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  std::filesystem::path directory_;
  std::string log_;
  std::uint64_t now_ = 1'700'000'000'000'000'000;
  std::unique_ptr<Capture> capture_;
  Tap* tap_ = nullptr;
  unsigned next_ = 0;
};

TEST_F(CaptureLimits, OneFileEndsAtItsSize) {
  create(directory_ / "x", {.file_size = kSize});
  for (int i = 0; i != 200; ++i) frame(0);
  EXPECT_THAT(log_, AllOf(HasSubstr("ends"), HasSubstr("size")));
  tap_->handle_port(2, "port-c", wire::Link::kEthernet);
  capture_.reset();
  EXPECT_THAT(files(), ElementsAre("x"));
  const auto packets = packets_of(file("x"));
  EXPECT_LE(file("x").size(), kSize);
  EXPECT_GT(file("x").size(), kSize - 1100) << "and not before";
  for (unsigned i = 0; i != packets.size(); ++i) EXPECT_EQ(number_of(packets[i]), i);
}

TEST_F(CaptureLimits, ARingKeepsTheNewestFramesInFilesThatAreWholeEach) {
  create(directory_ / "x", {.file_size = kSize, .files = 3});
  for (int i = 0; i != 500; ++i) frame(i % 2);
  capture_.reset();
  EXPECT_THAT(files(), UnorderedElementsAre("x0", "x1", "x2"));
  std::vector<unsigned> numbers;
  for (const auto* name : {"x0", "x1", "x2"}) {
    EXPECT_LE(file(name).size(), kSize);
    for (const auto& packet : packets_of(file(name))) {
      numbers.push_back(number_of(packet));
      EXPECT_EQ(packet.interface, numbers.back() % 2 == 0 ? "port-a" : "port-b");
    }
  }
  std::ranges::sort(numbers);
  ASSERT_GT(numbers.size(), 2 * 58u) << "two full files and what is in the third";
  for (unsigned i = 0; i != numbers.size(); ++i) {
    EXPECT_EQ(numbers[i], 500 - numbers.size() + i);
  }
}

// A process that fails and is replaced gets a port with the same number again.
TEST_F(CaptureLimits, APortThatComesWhenTheFileIsFullIsInTheNextOne) {
  create(directory_ / "x", {.file_size = kSize, .files = 2});
  for (int i = 0; i != 2000; ++i) tap_->handle_port(2, "again and again", wire::Link::kEthernet);
  tap_->handle_port(2, "the last of them", wire::Link::kEthernet);
  frame(2, 20);
  capture_.reset();
  EXPECT_LE(file("x0").size(), kSize);
  const auto packets = packets_of(file("x1"));
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].interface, "the last of them");
}

TEST_F(CaptureLimits, PortsThatFillAFileBeforeAnyFrameEndTheCapture) {
  create(directory_ / "x", {.file_size = kSize, .files = 2});
  for (std::uint32_t port = 2; port != 2000; ++port)
    tap_->handle_port(port, "one of many ports", wire::Link::kEthernet);
  frame(0);
  capture_.reset();
  EXPECT_THAT(log_, HasSubstr("ends"));
  EXPECT_LE(file("x0").size(), kSize);
  EXPECT_LE(file("x1").size(), kSize);
}

TEST_F(CaptureLimits, FilesOfARingAreNumberedSoThatTheySort) {
  EXPECT_EQ(CaptureWriter::name_of("a/x", 1, 0), "a/x");
  EXPECT_EQ(CaptureWriter::name_of("a/x", 10, 9), "a/x9");
  EXPECT_EQ(CaptureWriter::name_of("a/x", 11, 9), "a/x09");
  EXPECT_EQ(CaptureWriter::name_of("a/x", 101, 100), "a/x100");
}

TEST_F(CaptureLimits, AFrameThatFitsInNoFileIsMissingAndReportedByTheNext) {
  create(directory_ / "x", {.file_size = kSize, .files = 2});
  frame(0);
  for (int i = 0; i != 3; ++i) frame(0, kSize);
  frame(1);
  frame(0);
  EXPECT_EQ(capture_->lost(), 3u);
  capture_.reset();
  const auto packets = packets_of(file("x0"));
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_EQ(packets[1].dropped, 0u) << "nothing of port-b";
  EXPECT_EQ(packets[2].dropped, 3u);
  EXPECT_THAT(log_, HasSubstr("of 6 frames 3 are lost"));
}

TEST_F(CaptureLimits, AFullDiskEndsTheCaptureWithItsReason) {
  create("/dev/full", {});
  frame(0);
  capture_.reset();
  EXPECT_THAT(log_, AllOf(HasSubstr("capture /dev/full ends"), HasSubstr("No space left")));
}

TEST_F(CaptureLimits, AFileOfTheRingThatCannotBeOpenedEndsTheCaptureWithItsReason) {
  create(directory_ / "x", {.file_size = kSize, .files = 2});
  std::filesystem::create_directory(directory_ / "x1");
  for (int i = 0; i != 100; ++i) frame(0);
  capture_.reset();
  EXPECT_THAT(log_, AllOf(HasSubstr("ends"), HasSubstr("x1: Is a directory")));
  EXPECT_GT(packets_of(file("x0")).size(), 50u);
}

/// Lowers the file size limit of this process. A longer file raises SIGXFSZ.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t size) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{.rlim_cur = size, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_;
};

TEST_F(CaptureLimits, AFileThatMayNotGrowEndsTheCaptureAndKeepsWholeFrames) {
  const FileSizeLimit limit(10'500);
  create(directory_ / "x", {});
  for (int i = 0; i != 20; ++i) frame(0);
  capture_.reset();
  EXPECT_THAT(log_, AllOf(HasSubstr("ends"), HasSubstr("File too large")));
  EXPECT_EQ(packets_of(file("x")).size(), 9u);
}

// A pipe whose reader never reads acts like the slowest disk.
TEST_F(CaptureLimits, TheCapturingSwitchNeverWaits) {
  const auto path = (directory_ / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ::fcntl(reader, F_SETPIPE_SZ,
          1 << 20);  // large, so that reading all below takes few thread switches
  create(path, {});
  ::alarm(60);  // so that a hang ends the test
  // The waiting frames and those that the thread holds but cannot write fill all room.
  const auto frames = CaptureWriter::kCapacity / 1000 * 4;
  for (std::size_t i = 0; i != frames; ++i) frame(0);
  const auto lost = capture_->lost();
  EXPECT_GT(lost, frames / 4);
  EXPECT_LT(lost, frames * 7 / 8);
  EXPECT_THAT(log_, HasSubstr("frames are lost"));
  // The reader reads again, and must find how many frames it missed.
  std::string all;
  std::vector<char> piece(1 << 20);
  const auto read_on = [&] {
    const auto n = ::read(reader, piece.data(), piece.size());
    if (n > 0) all.append(piece.data(), static_cast<std::size_t>(n));
    return n > 0;
  };
  const auto end = util::monotonic_now() + 30s;
  bool has_room = false;
  while (!has_room && util::monotonic_now() < end) {
    read_on();
    const auto before = capture_->lost();
    frame(0);
    has_room = capture_->lost() == before;
  }
  EXPECT_TRUE(has_room);
  std::jthread rest([&](std::stop_token stop) {
    while (!stop.stop_requested()) read_on();
  });
  capture_.reset();
  rest.request_stop();
  rest.join();
  while (read_on()) {
  }
  ::close(reader);
  ::alarm(0);
  const auto packets = packets_of(all);
  const auto told = std::ranges::find_if(packets, [](const auto& p) { return p.dropped != 0; });
  ASSERT_NE(told, packets.end());
  EXPECT_EQ(told->dropped, number_of(*told) - number_of(*(told - 1)) - 1);
}

TEST_F(CaptureLimits, TsharkReadsEachFileOfARing) {
  if (std::system("command -v tshark >/dev/null 2>&1") != 0) GTEST_SKIP() << "no tshark";
  create(directory_ / "x", {.file_size = kSize, .files = 2});
  for (int i = 0; i != 100; ++i) frame(i % 2);
  capture_.reset();
  std::size_t lines = 0;
  for (const auto* name : {"x0", "x1"}) {
    const auto command = "tshark -r " + (directory_ / name).string() +
                         " -T fields -e frame.interface_name 2>/dev/null";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    char line[64];
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
      EXPECT_THAT(line, testing::AnyOf(testing::StrEq("port-a\n"), testing::StrEq("port-b\n")));
      ++lines;
    }
    EXPECT_EQ(::pclose(pipe), 0);
  }
  EXPECT_EQ(lines, 100u);
}

}  // namespace
}  // namespace softhca::fabric
