#!/bin/sh
# with_timeouts.sh FILE PROGRAM ARGUMENT...: stores the program's process in FILE. After its end, prints the device's ACK timeouts.
file=$1
shift
"$@" &
echo $! >"$file.new" && mv "$file.new" "$file"
wait $!
status=$?
sed 's/^/ACK timeouts: /' /sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err
exit $status
