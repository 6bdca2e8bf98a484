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
# cm_listener PORT: prints the program and the number of the identifier that listens there by rdma_cm. Fails if there is none.
cm_listener() {
  "$softhca" inspect "$control" rdma_cm 2>/dev/null | awk -v port=":$1\$" '
    /^  [^ ]/ {program = $1}
    $1 == "id" {id = program " " $2}
    $1 == "state:" {state = $2}
    $1 == "source:" && state == "listening" && $2 ~ port {print id; found = 1}
    END {exit !found}'
}
# listens_anew PORT LISTENER: another identifier than this line of cm_listener listens there.
listens_anew() {
  local now
  now=$(cm_listener "$1") && [ "$now" != "$2" ]
}
# holds_or_ended PROCESS COMMAND: the command succeeds, or the process has ended, so that waiting is useless.
holds_or_ended() { eval "$2" || ! kill -0 "$1" 2>/dev/null; }
# begins SERVER READY: starts the server, and sets `server` to its process. Fails if READY does not succeed within a minute while
# the server runs, or if the server ends first.
begins() {
  eval "timeout ${patience:-60} $1 &"
  server=$!
  eventually holds_or_ended $server "$2" || { kill $server; wait $server; return 1; }
  kill -0 $server 2>/dev/null || eval "$2" || { wait $server; echo "status $? before: $2: $1" >&2; return 1; }
}
# meet READY SERVER CLIENT: starts the client when READY succeeds. Server and client must succeed within $patience seconds (60).
meet() {
  local server status
  begins "$2" "$1" || return
  eval "timeout ${patience:-60} $3"
  status=$?
  wait $server || status=$?
  return $status
}
# meet_twice PORT SERVER CLIENT: the same for two connections by rdma_cm, of which the second has a listener of its own. If the
# client is faster than the server, it is rejected. So a rule delays all that the client's connection manager sends after its first
# request. The rule goes when the second listener is there.
meet_twice() {
  local server client first address rule status
  begins "$2" "cm_listens $1" || return
  first=$(cm_listener "$1") && address=$(address_of "${first% *}") || { kill $server; wait $server; return 1; }
  rule=$("$softhca" fault "$control" add "port=*,to=$address,qp=1,nth=2,for=100s,do=delay,time=100s") || { kill $server; wait $server; return 1; }
  eval "timeout ${patience:-60} $3 &"
  client=$!
  eventually holds_or_ended $client "listens_anew $1 '$first'"
  status=$?
  "$softhca" fault "$control" remove "${rule%%:*}" || status=$?
  wait $client || status=$?
  wait $server || status=$?
  return $status
}
# address_of PROGRAM: the IPv4 address of a program of the run, which ends in the same two bytes as its MAC.
address_of() {
  local mac
  mac=$("$softhca" inspect "$control" mlx5_0 | sed -nE "/^  ${1//./[.]}$/,/^  [^ ]/s/^ *mac: 0x//p")
  [ -n "$mac" ] && echo "198.18.$((0x${mac: -4:2})).$((0x${mac: -2}))"
}
export -f eventually has listens cm_listens cm_listener listens_anew holds_or_ended begins meet meet_twice address_of
