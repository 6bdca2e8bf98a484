// Packets whose ICRC others computed.
#pragma once

#include <string_view>

namespace softhca::wire::vectors {

/// A CNP captured on a ConnectX-4 Lx; from scapy's test/contrib/roce.uts.
inline constexpr std::string_view kCnpOfConnectX4Lx =
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a00"
    "1201000012b7002800008100ffff400001180000000000000000000000000000"
    "00000000000082fd002a";

// Built by scapy 2.5.0 (scapy.contrib.roce).

/// psn=0xabcdef, QP 0x1234, AckReq, pad 1; va 0x123456789abc, rkey 0xdeadbeef, "hello world".
inline constexpr std::string_view kRdmaWriteOnly =
    "02000000000202000000000108004502004800004000401126a10a0000010a000002c12312b70034"
    "00000a50ffff0000123480abcdef0000123456789abcdeadbeef0000000b68656c6c6f20776f726c"
    "6400dd043065";

/// VLAN 100, priority 3; QP 0x7f, psn=0x10; syndrome 0x1f, MSN 0x42.
inline constexpr std::string_view kAcknowledgeInVlan =
    "0200000000020200000000018100606408004500003000074000ff11f846c0a8010ac0a80114dead"
    "12b7001c00001140ffff0000007f000000101f00004220ccc2cc";

/// TOS 0xff, TTL 1, QP 1, solicited; Q_Key 0x80010000, source QP 1; the bytes 0 to 255.
inline constexpr std::string_view kUdSendOnly =
    "020000000002020000000001080045ff013400004000011163b80a0000010a000002c00012b70120"
    "000064c0ffff00000001000000058001000000000001000102030405060708090a0b0c0d0e0f1011"
    "12131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233343536373839"
    "3a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f6061"
    "62636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80818283848586878889"
    "8a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1"
    "b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9"
    "dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeffdd9a"
    "446d";

/// IPv6, which scapy cannot build. Python's zlib computed the ICRC over the bytes masked as IBTA
/// Annex A17 17.3.3 says. Traffic class 0x60, flow label 0x12345, hop limit 3, pad 3, immediate
/// 0xcafef00d.
inline constexpr std::string_view kSendOnlyImmediateIpv6 =
    "02000000000202000000000186dd6601234500201103fe800000000000000000000000000001fe80"
    "0000000000000000000000000002f00d12b70020000005f0ffff0000045680000001cafef00d4100"
    "0000069396b8";

// Python's zlib computed the ICRC over the bytes masked as IBTA 7.8.1 says. The VCRC was computed
// bit by bit from its polynomial.

/// InfiniBand, local: an RDMA WRITE of 14 bytes on VL 7.
inline constexpr std::string_view kLocalWriteOnly =
    "7012375c000e17d20a2024870087b1b3000dec2a01710a1c015d400238f27a050000000ebb884d85"
    "fd5cfba4728bc0690ed400009625b75a45fa";

/// InfiniBand, global: VL 2, SL 5, LIDs 0x34 to 0x12, traffic class 0x60, hop limit 3, pad 3.
inline constexpr std::string_view kGlobalSendOnlyImmediate =
    "20530012001200346601234500181b03fe800000000000000002c90300000001fe80000000000000"
    "0002c903000000020530ffff0000045680000001cafef00d4100000094a9cf86f2ac";

/// RoCEv1 in VLAN 100, priority 3: a datagram to QP 1, the bytes 0 to 7.
inline constexpr std::string_view kRoceV1UdSendOnly =
    "0200000000020200000000018100606489156000000000201b40fe800000000000000002c9030000"
    "0001fe800000000000000002c903000000026480ffff000000010000000580010000000000010001"
    "020304050607c6dc963a";

inline constexpr std::string_view kInfiniband[] = {kLocalWriteOnly, kGlobalSendOnlyImmediate};
inline constexpr std::string_view kAll[] = {kCnpOfConnectX4Lx, kRdmaWriteOnly, kAcknowledgeInVlan,
                                            kUdSendOnly, kSendOnlyImmediateIpv6};

}  // namespace softhca::wire::vectors
