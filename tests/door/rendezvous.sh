# How a script waits for another program: for a listener, or for what it has written. Sourced by the tests of this folder, with
# its functions exported: `softhca run -- bash -c` has them.

# eventually COMMAND...: until it succeeds; a minute without that is a failure. This is the only nap of the tests: /proc/net/tcp,
# files and `softhca inspect` do not say when they change.
eventually() {
  local end=$((SECONDS + 60))
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "in vain for a minute: $*" >&2; return 1; }
    sleep 0.02
  done
}
# has FILE REGEX: a program has written such a line into its file.
has() { grep -qE -- "$2" "$1" 2>/dev/null; }
# listens PORT...: each TCP port of this network has a listener.
listens() {
  local port
  for port; do grep -qi ":$(printf %04x "$port") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 || return 1; done
}
# cm_listens [PORT]: a program of this run, whose --control is $control, listens by rdma_cm.
cm_listens() {
  "$softhca" inspect "$control" rdma_cm 2>/dev/null | grep -A1 'state: listening' | grep -q "source: .*:${1:-[0-9]*}\$"
}
# holds_or_ended PROCESS COMMAND: COMMAND holds, or there is nothing to wait for any more.
holds_or_ended() { eval "$2" || ! kill -0 "$1" 2>/dev/null; }
# meet READY SERVER CLIENT: the client starts when READY holds. Both are to succeed, within $patience seconds (60).
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
