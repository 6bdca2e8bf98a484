#!/usr/bin/python3
"""check_trace.py TRACE.json: a trace of ib_read_bw between two RSNICs in the form that Perfetto reads.

Every event is as the Trace Event Format wants it, and the steps of at least one READ, from doorbell to completion, are
the modules of the document in the order in which it draws them (chapter 4, 4.4, chapter 10).
"""
import json
import sys

REQUEST, RESPONSE = "rsnic0", "rsnic1"
READ = [
    (REQUEST, "QP Manager: doorbell"),
    (REQUEST, "DMA: read descriptor"),  # the doorbell record, the WQE
    (REQUEST, "WQE Handler: send WQE"),
    (REQUEST, "MR: keyCtx entry"),
    (REQUEST, "IBH Processor: packet"),
    (REQUEST, "CMAC: transmit descriptor"),
    (RESPONSE, "CMAC: receive descriptor"),
    (RESPONSE, "IP Handler: RDMA packet"),
    (RESPONSE, "IBH Processor: headers"),
    (RESPONSE, "MR: keyCtx entry"),
    (RESPONSE, "DMA: read descriptor"),  # the data
    (RESPONSE, "IBH Processor: packet"),
    (RESPONSE, "CMAC: transmit descriptor"),
    (REQUEST, "CMAC: receive descriptor"),
    (REQUEST, "IP Handler: RDMA packet"),
    (REQUEST, "IBH Processor: headers"),
    (REQUEST, "MR: keyCtx entry"),
    (REQUEST, "DMA: write descriptor"),
    (REQUEST, "CQE Generator: CQE"),
    (REQUEST, "DMA: write descriptor"),
]


def fail(text):
    sys.exit(f"FAIL: {text}")


def check_event(event, names, last):
    """Those of metadata ("M") name a process or thread, all others are instants of a thread that has a name."""
    for key, kind in (("name", str), ("ph", str), ("pid", int), ("tid", int), ("args", dict)):
        if not isinstance(event.get(key), kind):
            fail(f"{key} is no {kind.__name__} in {event}")
    if event["ph"] == "M":
        if event["name"] not in ("process_name", "thread_name") or not isinstance(event["args"].get("name"), str):
            fail(f"no metadata of a process or thread: {event}")
        thread = event["tid"] if event["name"] == "thread_name" else None
        names[event["pid"], thread] = event["args"]["name"]
        return last
    if event["ph"] != "i" or event.get("s") != "t" or not isinstance(event.get("ts"), (int, float)):
        fail(f"no instant of a thread: {event}")
    if event["ts"] < last:
        fail(f"time goes back: {event}")
    if names.get((event["pid"], event["tid"])) != event.get("cat") or (event["pid"], None) not in names:
        fail(f"a thread without a name: {event}")
    return event["ts"]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names, last, steps = {}, 0, []
    for event in events:
        last = check_event(event, names, last)
        if event["ph"] == "M":
            continue
        step = (names[event["pid"], None], f"{event['cat']}: {event['name']}")
        if not steps or steps[-1] != step:
            steps.append(step)
    begins = [at for at, step in enumerate(steps) if step == READ[0]]
    if not any(steps[at:at + len(READ)] == READ for at in begins):
        seen = max((steps[at:at + len(READ)] for at in begins),
                   key=lambda got: next((i for i, pair in enumerate(zip(got, READ)) if pair[0] != pair[1]), 0))
        fail("no READ passes the modules in their order; the nearest:\n" + "\n".join(map(" ".join, seen)))
    print(f"{len(events)} events; a READ passes {len(READ)} steps in the order of the document")


if __name__ == "__main__":
    main()
