"""The other side of testpmd. dpdk_peer.py echo|send ADDRESS PORT COUNT: datagrams of many sizes; echo: each comes back
before the next is sent, with the same bytes."""
import random
import socket
import sys

verb, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer.bind(("", 4000))
peer.settimeout(20)
draw = random.Random(port)
for i in range(count):
    data = draw.randbytes(1 + i * 1471 // max(1, count - 1))  # up to a whole frame
    peer.sendto(data, (address, port))
    if verb == "echo":
        back, source = peer.recvfrom(2048)
        if back != data or source != (address, port):
            sys.exit(f"datagram {i} of {len(data)} bytes: {len(back)} others have come back, from {source}")
print(f"{count} datagrams {'came back whole' if verb == 'echo' else 'sent'}")
