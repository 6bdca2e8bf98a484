# Functions that wait for another program: for its listener, or for its output. The tests of this folder source them. They are
# exported, so that `softhca run -- bash -c` has them.

# eventually COMMAND...: repeats the command until it succeeds; fails after a minute. This is the only nap of the tests:
# /proc/net/tcp, files and `softhca inspect` do not notify of changes.
eventually() {
  local end=$((SECONDS + 60))
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "in vain for a minute: $*" >&2; return 1; }
    sleep 0.02
  done
}
# has FILE REGEX: the file has a line that matches.
has() { grep -qE -- "$2" "$1" 2>/dev/null; }
# listens PORT...: each of these TCP ports has a listener in this network namespace.
listens() {
  local port
  for port; do grep -qi ":$(printf %04x "$port") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 || return 1; done
}
# cm_listens [PORT]: a program of the run with --control $control listens by rdma_cm.
cm_listens() {
  "$softhca" inspect "$control" rdma_cm 2>/dev/null | grep -A1 'state: listening' | grep -q "source: .*:${1:-[0-9]*}\$"
}
# holds_or_ended PROCESS COMMAND: the command succeeds, or the process has ended, so that waiting is useless.
holds_or_ended() { eval "$2" || ! kill -0 "$1" 2>/dev/null; }
# meet READY SERVER CLIENT: starts the client when READY succeeds. Server and client must succeed within $patience seconds (60).
meet() {
  local server status
  eval "timeout ${patience:-60} $2 &"
  server=$!
  eventually holds_or_ended $server "$1"
  eval "timeout ${patience:-60} $3"
  status=$?
  wait $server || status=$?
  return $status
}
export -f eventually has listens cm_listens holds_or_ended meet
