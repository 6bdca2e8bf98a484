#include "fabric/capture.h"

#include <cassert>
#include <utility>

namespace softhca::fabric {
namespace {

constexpr std::string_view kFull = "the file has the size that it may have";

}  // namespace

class Capture::SwitchTap final : public Tap {
 public:
  explicit SwitchTap(Capture& capture) : capture_(capture) {}
  void handle_port(std::uint32_t port, std::string_view name, wire::Link link) override {
    if (ports_.size() <= port) ports_.resize(port + 1);
    ports_[port].emplace(Interface{.name = std::string(name), .link = link});
    capture_.add_interface(*ports_[port]);
  }
  void handle_frame(std::uint32_t ingress_port, const wire::Frame& frame) override {
    capture_.handle_frame(*ports_[ingress_port], frame);
  }
  std::size_t room() const override {
    return capture_.ended_ ? SIZE_MAX : capture_.writer_->room();
  }
  std::uint64_t taken() const override { return capture_.writer_->written(); }
  template <class Function>
  void for_each(Function function) {
    for (auto& port : ports_) {
      if (port) function(*port);
    }
  }

 private:
  Capture& capture_;
  std::vector<std::optional<Interface>> ports_;
};

util::Result<std::unique_ptr<Capture>> Capture::create(const std::string& path, Limits limits,
                                                       Clock clock) {
  assert(limits.files >= 1 && (limits.files == 1 || limits.file_size != 0));
  assert(limits.file_size == 0 || limits.file_size >= kFileSizeMin);
  auto writer = CaptureWriter::create(path, limits.files);
  if (!writer) return tl::unexpected(writer.error());
  return std::unique_ptr<Capture>(new Capture(path, limits, std::move(clock), *std::move(writer)));
}

Capture::Capture(std::string path, Limits limits, Clock clock,
                 std::unique_ptr<CaptureWriter> writer)
    : path_(std::move(path)),
      limits_(limits),
      clock_(std::move(clock)),
      writer_(std::move(writer)) {
  begin_file();
}

Capture::~Capture() {
  const auto finished = writer_->finish();
  if (!ended_ && !finished) end(util::LogLevel::kError, finished.error().message);
  if (lost_ == 0) return;
  util::log(util::LogLevel::kWarning, "capture {}: of {} frames {} are lost", path_, frames_,
            lost_);
}

Tap& Capture::add_tap() {
  taps_.push_back(std::make_unique<SwitchTap>(*this));
  return *taps_.back();
}

/// Begins a file with its header and all existing interfaces.
void Capture::begin_file() {
  blocks_.clear();
  pcapng_.emplace(blocks_);
  for (const auto& tap : taps_) {
    tap->for_each(
        [this](Interface& each) { each.id = pcapng_->add_interface(each.name, each.link); });
  }
  file_size_ = 0;
  if (!fits()) return end(util::LogLevel::kError, "a file may have less than its ports take");
  file_size_ = head_size_ = blocks_.size();
  writer_->put_always(blocks_);
}

bool Capture::fits() const {
  return limits_.file_size == 0 || file_size_ + blocks_.size() <= limits_.file_size;
}

bool Capture::ended() {
  if (!ended_ && writer_->failed()) end(util::LogLevel::kError, writer_->reason());
  return ended_;
}

void Capture::add_interface(Interface& interface) {
  if (ended()) return;
  blocks_.clear();
  interface.id = pcapng_->add_interface(interface.name, interface.link);
  if (!fits()) {
    if (limits_.files == 1) return end(util::LogLevel::kInfo, kFull);
    writer_->next_file();
    return begin_file();
  }
  file_size_ += blocks_.size();
  head_size_ += blocks_.size();
  writer_->put_always(blocks_);
}

void Capture::encode(const Interface& interface, std::uint64_t now, const wire::Frame& frame) {
  blocks_.clear();
  pcapng_->write({.interface_id = interface.id,
                  .time_ns = now,
                  .direction = wire::PcapngWriter::Direction::kOutbound,
                  .dropped = interface.dropped,
                  .comment = {}},
                 frame);
}

void Capture::handle_frame(Interface& interface, const wire::Frame& frame) {
  if (ended()) return;
  ++frames_;
  const auto now = clock_();
  encode(interface, now, frame);
  if (!fits()) {
    if (limits_.files == 1) return end(util::LogLevel::kInfo, kFull);
    if (head_size_ + blocks_.size() > limits_.file_size) return lose(interface);
    writer_->next_file();
    begin_file();
    if (ended_) return;
    encode(interface, now, frame);
  }
  if (!writer_->put(blocks_)) return lose(interface);
  file_size_ += blocks_.size();
  interface.dropped = 0;
}

void Capture::lose(Interface& interface) {
  ++interface.dropped;
  if (lost_++ != 0) return;
  util::log(util::LogLevel::kWarning,
            "capture {}: frames are lost, since the file is not written as fast as they come",
            path_);
}

void Capture::end(util::LogLevel level, std::string_view reason) {
  ended_ = true;
  util::log(level, "capture {} ends: {}", path_, reason);
}

}  // namespace softhca::fabric
