# Shell functions for scripts that run on the host and run scripts in a guest in the background. The first argument of each
# script is the guest's socket (guest/run --background); SOCKET.share is the guest's /share.
socket=$1 share=$1.share
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/wait.sh"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT

fail() {
  echo "FAIL: $*" >&2
  exit 1
}

# in_guest [OPTION...] -- WORD...: runs a script in the guest.
in_guest() { "$here/../../guest/in" "$socket" "$@"; }

# inspect WORD...: queries the guest's server.
control=$(in_guest --control)
inspect() { "${SOFTHCA:?the program}" inspect "$control" "$@"; }

# heap_bytes: bytes that the server's processes have allocated and not freed.
heap_bytes() { inspect loop --json | grep -o '"heap_bytes": *[0-9]*' | awk '{sum += $2} END {print sum + 0}'; }
