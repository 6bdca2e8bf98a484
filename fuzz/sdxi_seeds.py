"""Seeds of sdxi_fuzzer: valid and invalid actions of drivers."""

import struct

# As in sdxi_fuzzer.cc. An action's first byte also selects the actor: the PF, or (+ ACTIONS) its VF.
(REGISTER, BAR_WRITE, DOORBELL, PUSH, GOOD, MEMORY, STATE, ADMIN, RUN, TIME, RESET) = range(11)
ACTIONS = 11
PF, VF = 0, ACTIONS
(CTL0, GRP_ENUM, CTL2, CXT_L2, RKEY, ERR_CTL, ERR_STS, ERR_CFG, ERR_WRT, ERR_RD, MB_CTL, MBS_CTL) = range(12)
RESET_REQUEST, STOP_SOFT, STOP_HARD, ACTIVE = range(4)
DMA, ADMINISTRATION, ATOMIC, INTERRUPT = 1, 2, 3, 4
BASE = 1 << 32


def register(which, value, who=PF):
    return bytes([REGISTER + who, which]) + struct.pack("<Q", value)


def doorbell(context, value, who=PF):
    return bytes([DOORBELL + who, context]) + struct.pack("<Q", value)


def push(context, raw, who=PF):
    return bytes([PUSH + who, context]) + bytes(raw)


def good(context, kind, source, target, size, who=PF):
    """Addresses in units of 8 bytes from the beginning of the function's memory."""
    return bytes([GOOD + who, context, kind]) + struct.pack("<HHH", source, target, size)


def memory(at, content, who=PF):
    return bytes([MEMORY + who]) + struct.pack("<HB", at // 4, len(content) - 1) + content


def admin(kind, first, last, value=0xff, variant=0, vf=False, who=PF):
    return bytes([ADMIN + who, kind + 6 * variant + 128 * vf, first, last, value])


START, STOP, SYNC, UPDATE, AKEYS, ADM_INTR = range(6)
NO_DOORBELL_NM, NO_DOORBELL_RS, NM, RS = 0, 1, 2, 3
CXT, STOPS, AKEY, RKEYS, FUNCTION = range(5)


def run(turns=8, who=PF):
    return bytes([RUN + who, turns - 1])


def time(ten_ms, who=PF):
    return bytes([TIME + who, ten_ms])


def state(context, value, who=PF):
    return bytes([STATE + who, context, value])


def descriptor(kind, subtype, fields=(), fence=False, sequential=False, chain=False, simple=True, block=None):
    """`fields`: (lowest bit, value), as the document counts them."""
    word = 1 | sequential << 1 | fence << 2 | chain << 3 | simple << 4 | subtype << 8 | kind << 16
    for bit, value in fields:
        word |= value << bit
    word |= 1 << 448 if block is None else block << 448
    return word.to_bytes(64, "little")


def copy(source, target, size, akey0=0, akey1=0, **header):
    return descriptor(DMA, 3, [(32, size - 1), (96, akey0), (112, akey1), (128, source), (192, target)], **header)


FAR = BASE + 0x30000  # behind the structures
NOP = descriptor(DMA, 1)
ALL = b"".join(
    push(1, descriptor(kind, subtype, [(96, 0), (128, FAR), (192, FAR + 0x1000), (320, 1)]))
    for kind, subtypes in ((DMA, range(6)), (ATOMIC, range(16)), (INTERRUPT, range(2)), (0x1c, [0])) for subtype in subtypes)
REMOTE = b"".join(good(1, kind, 0x6000, 0x7000, 64) + good(1, kind + 8 * key, 0x6000, 0x7000, 64)
                  for key in (2, 3) for kind in range(6))
SEEDS = {
    "copies": b"".join(good(1 + i % 3, 0, 0x6000 + 64 * i, 0x7000 + 64 * i, 200 * i) for i in range(12)) + run(),
    "large_copies": good(1, 1, 0x1000, 0x4000, 0x100) + good(2, 1, 0x1000, 0x4000, 0x200) + run(1) + run(1),
    "completion_blocks": b"".join(good(1, 5, 0x6000, 0x7000 + 4 * i, 1) for i in range(20)) + run(),
    "every_operation": ALL + run(),
    "raw_copies": b"".join(push(1 + i, copy(FAR, FAR + 0x2000 * i, 0x1000, block=FAR + 0x8000)) for i in range(3)) + run(),
    "fences": push(1, copy(FAR, FAR + 4096, 4096)) + push(1, copy(FAR + 4096, FAR + 8192, 4096, fence=True, sequential=True))
    + run(),
    "bad_headers": push(1, descriptor(DMA, 1, chain=True)) + push(2, descriptor(DMA, 1, sequential=True))
    + push(3, descriptor(0x7f7, 0)) + push(0, NOP) + run(),
    "keys": REMOTE + run() + REMOTE.replace(bytes([GOOD]), bytes([GOOD + VF])) + run(who=VF),
    "key_changes": good(1, 24, 0x6000, 0x7000, 64) + run() + memory(0x5000, bytes(16)) + admin(AKEYS, 1, 1)
    + admin(SYNC, 1, 1, variant=AKEY) + good(1, 24, 0x6000, 0x7000, 64) + run(),
    "stop_and_start": admin(STOP, 1, 3) + admin(SYNC, 1, 3, variant=STOPS) + admin(START, 1, 3, variant=NM) + run()
    + good(2, 0, 0x6000, 0x7000, 64) + run(),
    "hard_stop_of_a_copy": good(1, 1, 0x1000, 0x4000, 0x400) + run(1) + admin(STOP, 1, 1, variant=1)
    + admin(SYNC, 1, 1, variant=STOPS) + run(),
    "stop_of_context_0": admin(STOP, 0, 3) + run() + state(0, 1) + doorbell(0, 2) + admin(SYNC, 0, 0, variant=FUNCTION) + run(),
    "starts_that_signal_all": admin(START, 0, 127, 0xff, RS) + admin(START, 0, 127, 200, RS) + run() + admin(START, 0, 3, 1, RS)
    + admin(START, 0, 0, 99, NM) + good(1, 0, 0x6000, 0x7000, 9) + run() + register(CTL0, STOP_SOFT) + run(),
    "starts_without_doorbell": admin(STOP, 1, 2) + run() + good(1, 0, 0x6000, 0x7000, 9) + admin(START, 1, 2, 0, NO_DOORBELL_NM)
    + run() + doorbell(1, 1) + run() + admin(START, 5, 4) + admin(START, 3, 200, 0, NO_DOORBELL_RS) + run(),
    "updates": b"".join(admin(UPDATE, i, 3 + i, variant=level) for i, level in enumerate((4, 6, 7, 5)))
    + admin(SYNC, 0, 127, variant=CXT) + admin(SYNC, 0, 0, variant=RKEYS) + admin(ADM_INTR, 3, 0) + run(),
    "doorbells": doorbell(1, 1000) + run() + push(1, NOP) + doorbell(1, 2) + doorbell(1, 1) + doorbell(1, 2**64 - 1)
    + doorbell(127, 1) + run(),
    "ring_overrun": b"".join(push(1, NOP) for _ in range(18)) + run(),
    "ring_wrap": b"".join(push(1, NOP) + run(1) for _ in range(40)),
    "missing_valid_bit": memory(0x5000, bytes(64)) + doorbell(1, 3) + run() + time(1) + run() + time(200) + run(),
    "illegal_states": b"".join(state(i % 4, i) + doorbell(i % 4, 1) + run(1) for i in range(16)),
    "function_stop": good(1, 1, 0x1000, 0x4000, 0x400) + register(CTL0, STOP_SOFT) + run() + register(CTL0, STOP_HARD) + run()
    + register(CTL0, ACTIVE) + run() + state(0, 1) + doorbell(0, 1) + run(),
    "function_error": register(CTL0, RESET_REQUEST) + good(1, 0, 0x6000, 0x7000, 64) + run() + register(CTL0, RESET_REQUEST)
    + register(CTL2, 0xffff0000) + register(CTL0, ACTIVE) + run(),
    "error_log": register(ERR_CTL, 1) + b"".join(push(1, copy(0x1000, 0x2000, 8)) + state(1, 1) + run(1) for _ in range(8))
    + register(ERR_STS, 15) + register(ERR_RD, 4) + register(ERR_CFG, 0) + register(ERR_WRT, 0) + register(ERR_CFG, BASE | 3),
    "limits": register(CTL2, 0x10000) + admin(START, 0, 3, 1, NM) + run() + register(RKEY, BASE | 0x1f) + REMOTE + run(),
    "pf_to_vf": admin(STOP, 1, 3, vf=True) + admin(SYNC, 1, 3, variant=STOPS, vf=True) + run() + run(who=VF)
    + admin(START, 0, 3, 200, RS, vf=True) + admin(UPDATE, 0, 3, variant=7, vf=True) + run() + run(who=VF),
    "pf_to_vf_that_is_stopped": register(CTL0, STOP_HARD, VF) + run(who=VF) + admin(STOP, 0, 3, vf=True)
    + admin(AKEYS, 0, 3, 9, vf=True) + admin(SYNC, 0, 3, variant=AKEY, vf=True) + admin(START, 0, 3, 1, NM, vf=True) + run(),
    "mailboxes": register(MB_CTL, 3) + register(MB_CTL, 3, VF) + register(MBS_CTL, 1) + register(MBS_CTL, 1, VF)
    + bytes([BAR_WRITE]) + struct.pack("<IQB", 0x60000, 2**64 - 1, 7),
    "resets": good(1, 1, 0x1000, 0x4000, 0x400) + run(1) + bytes([RESET]) + register(CTL0, ACTIVE) + run()
    + bytes([RESET + VF]) + good(1, 24, 0x6000, 0x7000, 64) + run(who=VF),
    "registers": b"".join(register(which, 2**64 - 1) for which in range(12)) + run()
    + b"".join(register(which, 0) for which in range(12)),
    "interrupts": b"".join(good(1, 2 + 8 * key, 0, 0, 0) for key in range(4)) + bytes([BAR_WRITE])
    + struct.pack("<IQB", 0x4000c, 1, 3) + good(1, 10, 0, 0, 0) + run(),
    "tables": b"".join(memory(at, bytes([at >> 8 & 0xff]) * 8) for at in range(0, 0x3000, 0x400))
    + b"".join(doorbell(i, 1) for i in range(5)) + run(),
}


def inputs():
    for name, data in SEEDS.items():
        yield "sdxi", name, data
