# Two machines, for the scripts that source it after lib.sh: network namespaces, each with a softhca network of its own. A veth
# joins them. `$a` and `$b` are the beginnings of commands on them: programs with the addresses of the veth.
rping=$(realpath "$here/rping")
unshare --net tail -f /dev/null & other=$!
trap 'kill $other; rm -rf "$folder"' EXIT
in_b=(nsenter --target $other --net)
eventually eval '[ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]'
ip link add veth0 type veth peer name veth0 netns $other
for namespace in "1 env" "2 ${in_b[*]}"; do
  read -r host enter <<<"$namespace"
  $enter ip addr add 10.77.0.$host/24 dev veth0
  $enter ip addr add fd00:77::$host/64 dev veth0 nodad
  $enter ip link set lo up
  $enter ip link set veth0 up
  "${nobody[@]}" mkdir -m 700 "$folder/$host"
done
set_mtu() { ip link set veth0 mtu $1 && "${in_b[@]}" ip link set veth0 mtu $1; }

# The beginnings of commands on the two machines.
machine="timeout 100 $softhca run --address if:veth0"
a="${nobody[*]} env XDG_RUNTIME_DIR=$folder/1 $machine"
b="${in_b[*]} ${nobody[*]} env XDG_RUNTIME_DIR=$folder/2 $machine"
