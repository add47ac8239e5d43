#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# limited_link.sh <train_gpt> [<rate> [<option>...]]: two TCP ranks of a thread each, in two network namespaces whose link
# is limited to a rate (tc's tbf; default 1gbit), train without and with progress threads by turns, five pairs: the steps'
# median seconds of each pair, their ratio, and its median. The model is that of workload A of docs/benchmarks/peers.md.
# A policy with Zero<3> has the most to hide. Needs root, ip and tc.
set -u
[ $# -ge 1 ] || { echo "usage: sh bench/comm/limited_link.sh <train_gpt> [<rate> [<option>...]]" >&2; exit 2; }
train=$(realpath "$1") || exit 2
rate=${2:-1gbit}
shift; [ $# -eq 0 ] || shift
a=dspp-la-$$ b=dspp-lb-$$
work=$(mktemp -d) || exit 1
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
ip netns add $a && ip netns add $b && ip link add le$$ netns $a type veth peer name lf$$ netns $b || exit 1
ip -n $a addr add 10.78.0.1/24 dev le$$ && ip -n $b addr add 10.78.0.2/24 dev lf$$ || exit 1
for link in "$a lo" "$b lo" "$a le$$" "$b lf$$"; do ip -n "${link% *}" link set "${link#* }" up || exit 1; done
for end in "$a le$$" "$b lf$$"; do
  ip netns exec "${end% *}" tc qdisc add dev "${end#* }" root tbf rate "$rate" burst 1mb latency 50ms || exit 1
done
seq 200000 >"$work/text"

# seconds_of <on or off> <option>...: the median of a job's steps, without the first two.
seconds_of() {
  way=$1; shift
  export WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.78.0.1 MASTER_PORT=29500 DSPP_TOKEN=link OMP_NUM_THREADS=1
  for rank in 1 0; do
    mkdir -p "$work/$rank" && rm -rf "$work/$rank/runs"
    (cd "$work/$rank" && RANK=$rank ip netns exec "$([ $rank = 0 ] && echo $a || echo $b)" taskset -c $rank "$train" \
      --data "$work/text" --layers 6 --width 384 --heads 6 --sequence 256 --micro-batch 4 --steps 12 --sample 0 \
      --async-progress "$way" "$@" >out 2>&1) &
  done
  wait
  sed -n 's/.*"seconds":\([^,]*\),.*/\1/p' "$work"/0/runs/*/metrics.jsonl |
    awk 'NR > 2 { print $1 - last } { last = $1 }' | sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

for pair in 1 2 3 4 5; do
  off=$(seconds_of off "$@") on=$(seconds_of on "$@")
  if [ -z "$off" ] || [ -z "$on" ]; then cat "$work/0/out" >&2; exit 1; fi
  echo "$pair $off $on" | awk '{ printf "pair %d: %.3f s a step without progress threads, %.3f with: %.3f times as fast\n", $1, $2, $3, $2 / $3 }'
  echo "$off $on" | awk '{ print $1 / $2 }' >>"$work/ratios"
done
sort -n "$work/ratios" | awk '{ x[NR] = $1 } END { printf "median of the ratios at %s: %.3f (%.3f to %.3f)\n", rate, x[3], x[1], x[5] }' rate="$rate"
