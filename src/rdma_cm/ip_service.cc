#include "rdma_cm/ip_service.h"

#include <algorithm>

#include "util/endian.h"
#include "util/field.h"

namespace softhca::rdma_cm {
namespace {

using Header = spec::cma_header;

driver::Gid address_in(std::span<const std::byte> at, bool ipv4) {
  driver::Gid gid{};
  std::ranges::copy(at, gid.bytes.begin());
  if (ipv4) util::store_be16(gid.bytes.data() + 10, 0xffff);
  return gid;
}

void put_address(std::span<std::byte> at, const driver::Gid& gid) {
  const std::size_t skip = gid.is_ipv4() ? 12 : 0;
  std::ranges::copy(std::span(gid.bytes).subspan(skip), at.begin() + static_cast<long>(skip));
}

}  // namespace

IpAddresses read_addresses(std::span<const std::byte> private_data) {
  const util::View<Header> header(private_data.first<kCmaHeader>());
  const bool ipv4 = header.get(Header::ip_version) == 4;
  return {.source = address_in(header.get(Header::source), ipv4),
          .destination = address_in(header.get(Header::destination), ipv4),
          .source_port = static_cast<std::uint16_t>(header.get(Header::port))};
}

void write_addresses(std::span<std::byte> private_data, const IpAddresses& addresses) {
  const util::MutableView<Header> header(private_data.first<kCmaHeader>());
  header.set(Header::ip_version, addresses.destination.is_ipv4() ? 4 : 6);
  header.set(Header::port, addresses.source_port);
  put_address(header.sub(Header::source), addresses.source);
  put_address(header.sub(Header::destination), addresses.destination);
}

}  // namespace softhca::rdma_cm
