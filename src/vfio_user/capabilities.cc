#include "vfio_user/capabilities.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "vfio_user/message_stream.h"

namespace softhca::vfio_user {
namespace {

using nlohmann::json;

/// Most bytes of version data: a client's proposal has a few hundred.
constexpr std::size_t kVersionDataMax = 16 * 1024;

/// The known part of the client's proposal, read while it is parsed: a tree (nlohmann::json) would
/// need memory in its destructor.
class Proposal final : public nlohmann::json_sax<json> {
 public:
  /// The reason if the proposal was refused.
  MessageResult result() const { return result_; }
  MessageResult take(ClientCapabilities* client) const {
    if (!is_object_) return refuse(EINVAL, "version data is not a JSON object");
    if (const auto& fds = number(kMsgFds)) client->max_msg_fds = *fds;
    if (const auto& size = number(kDataXferSize)) client->max_data_xfer_size = *size;
    if (client->max_data_xfer_size == 0) return refuse(EINVAL, "max_data_xfer_size is 0");
    return kDone;
  }
  /// "The capability list must be a subset of those proposed." So it is at most as long as the
  /// request, and QEMU has room for no more.
  std::string answer(std::size_t max_dma_maps) const {
    if (!has_capabilities_) return "{}";
    const std::array ours{std::uint64_t{kMaxDataXferSize}, std::uint64_t{max_dma_maps},
                          std::uint64_t{kMaxMsgFds}, kDmaPageSize};
    std::string list;
    for (std::size_t i = 0; i != kNumbers.size(); ++i) {
      if (numbers_[i]) list += fmt::format("\"{}\":{},", kNumbers[i], ours[i]);
    }
    if (write_multiple_) list += fmt::format("\"{}\":{},", kWriteMultiple, *write_multiple_);
    if (!list.empty()) list.pop_back();
    return fmt::format("{{\"capabilities\":{{{}}}}}", list);
  }

  // json_sax: returning false ends the parse.
  bool null() override { return take_other(); }
  bool boolean(bool value) override {
    if (!in_capabilities() || name_ != kWriteMultiple) return take_other();
    write_multiple_ = value;
    return true;
  }
  bool number_integer(number_integer_t) override { return take_other(); }
  bool number_unsigned(number_unsigned_t value) override {
    const auto found = std::ranges::find(kNumbers, name_);
    if (!in_capabilities() || found == kNumbers.end()) return take_other();
    numbers_[static_cast<std::size_t>(found - kNumbers.begin())] = value;
    return true;
  }
  bool number_float(number_float_t, const string_t&) override { return take_other(); }
  bool string(string_t&) override { return take_other(); }
  bool binary(binary_t&) override { return take_other(); }
  bool start_object(std::size_t) override {
    const bool capabilities = depth_ == 1 && name_ == kCapabilities;
    if (depth_ == 0) is_object_ = true;
    has_capabilities_ |= capabilities;
    if (depth_ != 0 && !capabilities && !take_other()) return false;
    in_ = capabilities || (in_ && depth_ > 1);
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    name_ = name.size() <= kLongestName ? name : std::string();
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    if (!take_other()) return false;
    ++depth_;
    return true;
  }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  static constexpr std::string_view kCapabilities = "capabilities";
  static constexpr std::string_view kWriteMultiple = "write_multiple";
  static constexpr std::size_t kLongestName = 32;
  static constexpr std::array<std::string_view, 4> kNumbers = {"max_data_xfer_size", "max_dma_maps",
                                                               "max_msg_fds", "pgsizes"};
  static constexpr std::size_t kDataXferSize = 0, kMsgFds = 2;

  const std::optional<std::uint64_t>& number(std::size_t which) const { return numbers_[which]; }
  /// True if the next value belongs to a capability.
  bool in_capabilities() const { return in_ && depth_ == 2; }
  /// Handles a value of any other type.
  bool take_other() {
    if (depth_ == 0) {
      result_ = refuse(EINVAL, "version data is not a JSON object");
    } else if (depth_ == 1 && name_ == kCapabilities) {
      result_ = refuse(EINVAL, "capabilities are not an object");
    } else if (in_capabilities() && name_ == kWriteMultiple) {
      result_ = refuse(EINVAL, "write_multiple is not a boolean");
    } else if (in_capabilities() && std::ranges::find(kNumbers, name_) != kNumbers.end()) {
      result_ = refuse(EINVAL, "a capability is not a number");
    }
    return bool{result_};
  }

  MessageResult result_ = kDone;
  std::size_t depth_ = 0;
  std::string name_;  ///< name of the next value, if it may be a known one
  bool is_object_ = false;
  bool in_ = false;  ///< the object at depth 2 is the capabilities
  bool has_capabilities_ = false;
  std::array<std::optional<std::uint64_t>, kNumbers.size()> numbers_;
  std::optional<bool> write_multiple_;
};

}  // namespace

MessageResult negotiate_version(std::span<const std::byte> request, std::size_t max_dma_maps,
                                ClientCapabilities* client, std::string* reply) {
  if (request.size() < sizeof(protocol::Version)) return refuse(EINVAL, "shorter than a version");
  const auto proposed = protocol::load<protocol::Version>(request);
  if (proposed.major != protocol::kMajor) return refuse(EINVAL, "unknown major version");
  const protocol::Version ours{.major = protocol::kMajor,
                               .minor = std::min(proposed.minor, protocol::kMinor)};
  reply->assign(reinterpret_cast<const char*>(&ours), sizeof ours);

  const auto data = request.subspan(sizeof(protocol::Version));
  if (data.empty()) return kDone;
  if (data.size() > kVersionDataMax) return refuse(EINVAL, "version data too long");
  if (data.back() != std::byte{0}) return refuse(EINVAL, "version data without its NUL");
  const auto* text = reinterpret_cast<const char*>(data.data());
  Proposal proposal;
  if (!json::sax_parse(text, text + data.size() - 1, &proposal)) {
    const auto result = proposal.result();
    return result ? refuse(EINVAL, "version data is not JSON") : result;
  }
  if (auto v = proposal.take(client); !v) return v;
  *reply += proposal.answer(max_dma_maps);
  *reply += '\0';
  return kDone;
}

}  // namespace softhca::vfio_user
