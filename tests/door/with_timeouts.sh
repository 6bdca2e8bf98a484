#!/bin/sh
# with_timeouts.sh FILE PROGRAM ARGUMENT...: stores the program's process in FILE. After its end, prints how many ACK timeouts the machine's
# device had meanwhile. The counter is that of all programs of the network.
counter=/sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err
before=$(cat $counter)
file=$1
shift
"$@" &
echo $! >"$file.new" && mv "$file.new" "$file"
wait $!
status=$?
echo "ACK timeouts: $(($(cat $counter) - before))"
exit $status
