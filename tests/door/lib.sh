# The beginning of the scripts of this folder: `. lib.sh "$@"`. The arguments are SOFTHCA and the folder of the test programs.
# The scripts can run at the same time, because each has:
# - a network namespace, where no other process has perftest's port;
# - a network of softhca, which no other run uses;
# - a /tmp, since another user may have left perftest's /tmp/xrc_domain_server there.
# If root starts them, their runs are those of an unprivileged user.
set -u
if [ -z "${OWN_NETWORK:-}" ]; then
  [ "$(id -u)" = 0 ] && user=() || user=(--map-current-user --keep-caps)
  OWN_NETWORK=1 exec unshare --net --mount "${user[@]}" sh -c 'ip link set lo up
    case "$0 $1 $2" in */tmp/*) ;; *) mount -t tmpfs -o mode=1777 tmpfs /tmp ;; esac
    exec "$0" "$@"' "$0" "$@"
fi
here=$(dirname "$0")
. "$here/rendezvous.sh"
export softhca=$1 programs=$2
[ "$(id -u)" = 0 ] && nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups) || nobody=()
# The folder also gets the test's own files, and the rdma_xrc_domain files of libibverbs' programs.
folder=$("${nobody[@]}" mktemp -d) && trap 'rm -rf "$folder"' EXIT
export folder control=$folder/control HOME=/tmp XDG_RUNTIME_DIR=$folder TMPDIR=$folder
failed=0

# run [OPTION...] -- COMMAND...
run() { "${nobody[@]}" timeout 100 "$softhca" run "$@"; }
# says COUNT REGEX COMMAND...: the command succeeds, and COUNT lines of its output match.
says() {
  local count=$1 expected=$2 out status seen
  shift 2
  out=$("$@" 2>&1)
  status=$?
  seen=$(grep -cE -- "$expected" <<<"$out")
  [ $status = 0 ] && [ "$seen" = "$count" ] && return
  echo "status $status, $seen lines of '$expected':"
  echo "$out"
  return 1
}
# prints TEXT COMMAND...: the command succeeds, and prints exactly TEXT.
prints() {
  local expected=$1 out status
  shift
  out=$("$@" 2>"$folder/errors")
  status=$?
  [ $status = 0 ] && [ "$out" = "$expected" ] && return
  echo "status $status:"
  echo "$out"
  cat "$folder/errors"
  return 1
}
# test_that NAME COMMAND...: prints a line with the result, and the output if the command fails.
test_that() {
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then echo "ok: $name"; else echo "FAILED: $name: $out"; failed=1; fi
}
