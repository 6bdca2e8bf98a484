"""The parts of guest/run: what it builds once (apt, cache, kernel, root, qemu) and what it
runs each time (server, hub, machine, session)."""
