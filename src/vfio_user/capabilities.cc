#include "vfio_user/capabilities.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "vfio_user/message_stream.h"

namespace softhca::vfio_user {
namespace {

using nlohmann::json;

/// A client proposes in a few hundred bytes; more is not a proposal.
constexpr std::size_t kVersionDataMax = 16 * 1024;

/// A capability that is a number: leaves *value alone if the client does not mention it.
Verdict take_number(const json& proposed, const char* name, std::uint64_t* value) {
  const auto found = proposed.find(name);
  if (found == proposed.end()) return kDone;
  if (!found->is_number_unsigned()) return refuse(EINVAL, "a capability is not a number");
  *value = found->get<std::uint64_t>();
  return kDone;
}

Verdict take_proposal(const json& proposed, ClientCapabilities* client) {
  if (!proposed.is_object()) return refuse(EINVAL, "capabilities are not an object");
  if (auto v = take_number(proposed, "max_msg_fds", &client->max_msg_fds); !v) return v;
  if (auto v = take_number(proposed, "max_data_xfer_size", &client->max_data_xfer_size); !v)
    return v;
  if (client->max_data_xfer_size == 0) return refuse(EINVAL, "max_data_xfer_size is 0");
  std::uint64_t pgsizes = kDmaPageSize;
  if (auto v = take_number(proposed, "pgsizes", &pgsizes); !v) return v;
  std::uint64_t max_dma_maps = 0;
  if (auto v = take_number(proposed, "max_dma_maps", &max_dma_maps); !v) return v;
  const auto multi = proposed.find("write_multiple");
  if (multi != proposed.end() && !multi->is_boolean()) {
    return refuse(EINVAL, "write_multiple is not a boolean");
  }
  return kDone;
}

/// "The capability list must be a subset of those proposed." It is then also no longer than the
/// request, and QEMU has room for no more than that.
json answer(const json& proposed, std::size_t max_dma_maps) {
  json out = json::object();
  if (proposed.contains("max_msg_fds")) out["max_msg_fds"] = kMaxMsgFds;
  if (proposed.contains("max_data_xfer_size")) out["max_data_xfer_size"] = kMaxDataXferSize;
  if (proposed.contains("pgsizes")) out["pgsizes"] = kDmaPageSize;
  if (proposed.contains("max_dma_maps")) out["max_dma_maps"] = max_dma_maps;
  if (proposed.contains("write_multiple")) out["write_multiple"] = proposed["write_multiple"];
  return out;
}

}  // namespace

Verdict negotiate_version(std::span<const std::byte> request, std::size_t max_dma_maps,
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
  const auto parsed =
      json::parse(text, text + data.size() - 1, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return refuse(EINVAL, "version data is not JSON");
  if (!parsed.is_object()) return refuse(EINVAL, "version data is not a JSON object");
  json out = json::object();
  if (const auto found = parsed.find("capabilities"); found != parsed.end()) {
    if (auto v = take_proposal(*found, client); !v) return v;
    out["capabilities"] = answer(*found, max_dma_maps);
  }
  *reply += out.dump();
  *reply += '\0';
  return kDone;
}

}  // namespace softhca::vfio_user
