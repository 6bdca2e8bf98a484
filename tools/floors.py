"""Permitted includes: each folder may include itself and the listed ones.

tools/tidy.py enforces this, and docs/architecture.md shows it (make docs).
"""

# By folder of src/, in the order of docs/architecture.md.
MAY_INCLUDE = {
        "util": set(),
        "os": {"util"},
        "spec": {"util"},
        "wire": {"util", "spec"},
        "fabric": {"util", "os", "wire"},
        "subnet": {"util", "spec", "wire", "fabric"},
        "pcie": {"util", "spec"},
        "rdma": {"util", "spec", "wire", "fabric", "pcie"},
        "ethernet": {"util", "wire"},
        "hca": {"util", "pcie", "rdma"},
        "connectx": {"util", "os", "spec", "wire", "fabric", "pcie", "rdma", "ethernet", "hca"},
        "rsnic": {"util", "spec", "connectx"},
        "jingzhao": {"util", "spec", "wire", "fabric", "subnet", "pcie", "rdma", "hca"},
        "sdxi": {"util", "spec", "pcie"},
        "vfio_user": {"util", "os", "pcie"},
        "hub": {"util", "os", "spec", "wire", "fabric"},
        "trunk": {"util", "os", "wire", "fabric", "hub"},
        "driver": {"util", "os", "spec", "wire", "pcie", "vfio_user"},
        "lab": {"util", "fabric", "subnet", "pcie", "connectx", "rsnic", "jingzhao", "driver"},
        "uverbs": {"util", "os", "spec", "driver"},
        "cm": {"util", "spec", "wire"},
        "rdma_cm": {"util", "os", "spec", "wire", "driver", "uverbs", "cm"},
        "door": {"util", "os", "spec", "wire", "fabric", "pcie", "connectx", "hub", "driver", "uverbs", "rdma_cm"},
        "control": {"util", "os"},
        "run": {"util", "os", "wire", "fabric", "connectx", "hub", "trunk", "door", "control"},
        "server": {"util", "os", "wire", "fabric", "subnet", "pcie", "ethernet", "hca", "connectx", "rsnic", "jingzhao", "sdxi", "vfio_user",
               "hub", "control", "run"},
        "perf": {"util", "os", "jingzhao", "driver", "lab"},
        "cli": {"util", "os", "spec", "fabric", "hca", "connectx", "rsnic", "sdxi", "driver", "lab", "run", "server", "perf"},
}

# By chapter of src/connectx/. Its commands (*_commands.cc) may include everything.
CHAPTERS = {
    "base": set(),
    "queue": {"base"},
    "event": {"base", "queue"},
    "memory": {"base", "queue", "event"},
    "qp": {"base", "queue", "event", "memory"},
    "steering": {"base"},
    "port": {"base", "event"},
    "ethernet": {"base", "queue", "event", "memory", "steering", "port"},
    "function": {"base", "event"},
    "command": {"base", "event"},
}
# Every chapter may use the definition of a command.
FOR_ALL_CHAPTERS = {"connectx/command/command.h"}

# By chapter of src/door/; "" is its root.
DOOR_CHAPTERS = {
    "process": set(),
    "memory": set(),
    "tree": set(),
    "control": set(),
    "nldev": set(),
    "card": {"memory", "tree"},
    "engine": {"process", "memory", "tree", "control", "card"},
    "": {"process", "memory", "tree", "control", "card", "engine"},
    "interpose": {"process", "memory", "tree", "nldev", ""},
}
