"""Bytes from one host to another, compared on arrival.

transfer.py serve tcp|udp CONNECTIONS ADDRESS PORT_FILE
transfer.py send tcp|udp CONNECTIONS BYTES ADDRESS PORT

tcp: on each of the connections, at the same time, BYTES that follow from its number; the receiver answers with their
SHA-256. udp: BYTES in one system call, of which the kernel, or the device, makes datagrams of 1400 bytes (UDP_SEGMENT);
the receiver expects each once."""
import hashlib
import os
import random
import selectors
import socket
import sys
import threading

SEGMENT = 1400
UDP_SEGMENT = 103
SO_RCVBUFFORCE = 33
SECONDS = 60  # of standstill


def content(number, size):
    return random.Random(number).randbytes(size)


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def tell_port(where, port):
    with open(where + ".new", "w") as file:
        file.write(f"{port}\n")
    os.rename(where + ".new", where)


def receive_stream(connection):
    digest = hashlib.sha256()
    while data := connection.recv(1 << 16):
        digest.update(data)
    connection.sendall(digest.digest())
    connection.close()


def serve_tcp(connections, address, where):
    listener = socket.create_server((address, 0), family=family(address), backlog=connections)
    tell_port(where, listener.getsockname()[1])
    listener.settimeout(SECONDS)
    threads = []
    for _ in range(connections):
        connection, _ = listener.accept()
        connection.settimeout(SECONDS)
        threads.append(threading.Thread(target=receive_stream, args=(connection,)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def send_tcp(connections, size, address, port):
    """Sends on all connections concurrently, as much as each accepts."""
    selector = selectors.DefaultSelector()
    expected = []
    for number in range(connections):
        data = content(number, size)
        expected.append(hashlib.sha256(data).digest())
        connection = socket.create_connection((address, port), SECONDS)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_WRITE, [number, memoryview(data)])
    done = []
    while selector.get_map():
        ready = selector.select(SECONDS)
        if not ready:
            sys.exit("nothing can be sent any more")
        for key, _ in ready:
            key.data[1] = key.data[1][key.fileobj.send(key.data[1]):]
            if not key.data[1]:
                selector.unregister(key.fileobj)
                key.fileobj.shutdown(socket.SHUT_WR)
                done.append((key.data[0], key.fileobj))
    for number, connection in done:
        connection.settimeout(SECONDS)
        if connection.recv(32, socket.MSG_WAITALL) != expected[number]:
            sys.exit(f"connection {number}: what arrived is not what was sent")
    print(f"{connections} connections of {size} bytes arrived whole")


def serve_udp(_, address, where):
    receiver = socket.socket(family(address), socket.SOCK_DGRAM)
    # The kernel charges a datagram with the whole page that the driver put it in.
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
    receiver.bind((address, 0))
    receiver.settimeout(SECONDS)
    tell_port(where, receiver.getsockname()[1])
    size = None
    arrived = {}
    while size is None or sum(map(len, arrived.values())) < size:
        data = receiver.recv(1 << 16)
        index = int.from_bytes(data[:4], "big")
        size = int.from_bytes(data[4:8], "big")
        if index in arrived or len(data) > SEGMENT:
            sys.exit(f"datagram {index} of {len(data)} bytes: twice, or too long")
        arrived[index] = data
    if b"".join(arrived[index] for index in sorted(arrived)) != datagrams(size):
        sys.exit("what arrived is not what was sent")


def datagrams(size):
    """Each datagram begins with its number and the total size."""
    parts = []
    for index, begin in enumerate(range(0, size, SEGMENT)):
        head = index.to_bytes(4, "big") + size.to_bytes(4, "big")
        parts.append(head + content(index, min(SEGMENT, size - begin) - len(head)))
    return b"".join(parts)


def send_udp(_, size, address, port):
    sender = socket.socket(family(address), socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, SEGMENT)
    sender.sendto(datagrams(size), (address, port))
    print(f"{-(-size // SEGMENT)} datagrams sent in one call")


def main():
    verb, protocol, connections = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if verb == "serve":
        {"tcp": serve_tcp, "udp": serve_udp}[protocol](connections, *sys.argv[4:])
    else:
        size, address, port = sys.argv[4:]
        {"tcp": send_tcp, "udp": send_udp}[protocol](connections, int(size), address, int(port))


main()
