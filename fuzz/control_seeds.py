"""Seeds of control_fuzzer and fault_rule_fuzzer."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONNECT, SEND, LINE, RECEIVE, SHUTDOWN, CLOSE = range(6)

RULES = [
    "do=fail", "do=fail,class=0x2100", "do=delay,time=50us", "do=delay,time=3s,nth=2", "do=stall,every=7",
    "function=a,context=3,operation=DSC_DMAB_COPY,nth=5,do=fail", "do=bad-completion", "do=lose-completion",
    "do=lose-interrupt,operation=DSC_INTR", "function=b,do=hang-soft-stop", "do=hang-stop,context=65535",
    "do=delay", "class=1,do=stall", "nth=1,every=2,do=fail", "function=nic,do=fail", "operation=NOP,do=fail",
    "port=*,do=lose", "port=nic,direction=rx,qp=0x112,opcode=read-response,nth=3,do=lose", "port=a,do=corrupt,part=icrc",
    "port=*,from=02:00:00:00:00:01,to=fe80::1,kind=rdma,for=2ms,do=delay,time=1ms,jitter=5us", "port=a,do=pause,time=1s",
    "port=a,probability=0.25,seed=9,every=2,do=reorder,distance=4", "port=a,to=7,do=mark-ecn,queue=64K", "port=a,do=duplicate",
    "port=a,opcode=RC_ACKNOWLEDGE,from=10.0.0.1,do=limit,rate=100mbit,queue=1500", "port=a,do=link-down,time=1ms,period=2ms",
]
REQUESTS = ["inspect", "inspect --json", "inspect a", "inspect nic --json", "inspect nobody", "fault list",
            "fault remove 1", "fault remove x", "fault clear", "fault", "", "nonsense"]


def step(action, client, argument=b"", serve=True):
    """An action's code with the bit that lets the server run: 0x80 is 2 modulo 6."""
    code = action
    if serve:
        code = next(c for c in range(0x80, 0x100) if c % 6 == action)
    return bytes([code, client]) + argument


def text(line):
    return bytes([len(line)]) + line.encode()


def scripts():
    for number, line in enumerate(REQUESTS + [f"fault add {rule}" for rule in RULES]):
        name = re.sub(r"\W+", "_", line)[:40] or "empty"
        yield f"{number:02}_{name}", (step(CONNECT, 0) + step(LINE, 0, text(line)) +
                                      step(RECEIVE, 0, b"\xff") + step(CLOSE, 0))
    yield "in_pieces", (step(CONNECT, 1) + step(SEND, 1, text("insp")) + step(SEND, 1, text("ect a")) +
                        step(LINE, 1, text("")) + step(RECEIVE, 1, b"\x10") + step(RECEIVE, 1, b"\xff"))
    yield "gone_before_the_answer", (step(CONNECT, 2) + step(LINE, 2, text("inspect"), serve=False) + step(CLOSE, 2))
    yield "reads_slowly", (step(CONNECT, 3) + step(LINE, 3, text("inspect --json")) +
                           b"".join(step(RECEIVE, 3, b"\x01") for _ in range(8)))
    yield "half_closed", step(CONNECT, 4) + step(SEND, 4, text("inspect")) + step(SHUTDOWN, 4, b"\x01")
    yield "too_long", step(CONNECT, 5) + b"".join(step(SEND, 5, text("x" * 250)) for _ in range(18))
    yield "too_many", b"".join(step(CONNECT, client, serve=client % 3 == 0) for client in range(20))


def inputs():
    for name, data in scripts():
        yield "control", name, data
    for number, rule in enumerate(RULES):
        yield "fault_rule", f"{number:02}", rule.encode()
