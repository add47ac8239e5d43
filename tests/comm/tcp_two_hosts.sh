#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tcp_two_hosts.sh <train_gpt> <train_gpt_by_node>: two named network namespaces act as two hosts, one rank on each,
# connected by TCP: the losses of thread ranks with a token, and a sentence without one or with another. Then two ranks
# on each, of a policy that shards and quantizes by node: the losses and the traffic of thread ranks on virtual nodes.
set -u
train=$1 by_node=$2

skip() { echo "dspp: skipped: $1"; exit 77; }
fail() { echo "dspp: $1"; exit 1; }

for tool in ip unshare hostname; do command -v $tool >/dev/null || skip "there is no $tool to make two hosts with"; done
unshare --uts hostname dspp-a 2>/dev/null || skip "this user may not name a host (unshare --uts)"
a=dspp-ta-$$ b=dspp-tb-$$
work=$(mktemp -d) || exit 1
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
{ ip netns add $a && ip netns add $b && ip link add vc$$ netns $a type veth peer name vd$$ netns $b; } 2>/dev/null ||
  skip "this user may not make network namespaces (ip netns add)"
ip -n $a addr add 10.77.0.1/24 dev vc$$
ip -n $b addr add 10.77.0.2/24 dev vd$$
for link in "$a lo" "$b lo" "$a vc$$" "$b vd$$"; do ip -n "${link% *}" link set "${link#* }" up; done

seq 20000 >"$work/text"
for folder in threads first second threads_4 rank_0 rank_1 rank_2 rank_3; do mkdir "$work/$folder"; done
small="--data $work/text --steps 8 --layers 1 --width 32 --heads 2 --sequence 16 --micro-batch 2 --sample 0 --timeout 3"

# train_in <folder> <command>...: trains there; what it printed is in out.
train_in() {
  cd "$work/$1" || exit 1
  shift
  "$@" $small >out 2>&1
}
# rank <number> <of> <namespace> <host> <folder> [<token>]: of the program $train, whose further options are $options.
rank() {
  [ $# -lt 6 ] || export DSPP_TOKEN="$6"
  export RANK=$1 WORLD_SIZE=$2 LOCAL_WORLD_SIZE=$(($2 / 2)) MASTER_ADDR=10.77.0.1 MASTER_PORT=29500
  # shellcheck disable=SC2086 # a list of words
  train_in "$5" unshare --uts sh -c 'hostname "$1"; shift; exec ip netns exec "$@"' sh "$4" "$3" "$train" $options
}
options=
# both [<token of rank 0> <token of rank 1>]: the status of rank 0
both() {
  (rank 1 2 $b dspp-b second ${2:+"$2"}) &
  (rank 0 2 $a dspp-a first ${1:+"$1"})
  status=$?
  wait
  return $status
}
says() { grep -q "$2" "$work/$1/out" || { cat "$work/$1/out"; fail "the rank in $1 does not say '$2'."; }; }
losses() { sed -n 's/.*\("loss":[^,]*\).*\("gradient_norm":[^,]*\).*/\1 \2/p' "$work/$1"/runs/*/metrics.jsonl; }

both && fail "two hosts are connected without a token."
says first "needs the variable DSPP_TOKEN for a MASTER_ADDR beyond this machine, '10.77.0.1'"
says second "needs the variable DSPP_TOKEN for a MASTER_ADDR beyond this machine, '10.77.0.1'"
both secret guess && fail "two hosts are connected with two tokens."
says first "did not see rank 1 (a process at 10.77.0.2 presented another DSPP_TOKEN)"
says second "rank 1 needs the DSPP_TOKEN of the other ranks"
train_in threads "$train" --ranks 2 || { cat "$work/threads/out"; fail "the job on threads failed."; }
both secret secret || { cat "$work/first/out"; fail "the job on two hosts failed."; }
losses threads >"$work/of_threads"
losses first >"$work/of_hosts"
[ "$(wc -l <"$work/of_threads")" -eq 8 ] || fail "the job on threads has no 8 losses."
cmp "$work/of_threads" "$work/of_hosts" || fail "two hosts have other losses than two threads."

train=$by_node options="--json job.json"
train_in threads_4 "$train" --ranks 4 --ranks-per-node 2 $options || { cat "$work/threads_4/out"; fail "the job on four threads failed."; }
for number in 1 2 3; do
  host=$((number / 2))
  (rank $number 4 "$([ $host = 0 ] && echo $a || echo $b)" dspp-$host rank_$number secret) &
done
(rank 0 4 $a dspp-0 rank_0 secret) || { cat "$work/rank_0/out"; fail "the job on four ranks failed."; }
wait
for kind in threads_4 rank_0; do
  losses $kind >"$work/losses_of_$kind"
  grep -o '"traffic":.*' "$work/$kind/job.json" >"$work/traffic_of_$kind" || fail "the job in $kind counts no traffic."
done
[ "$(wc -l <"$work/losses_of_rank_0")" -eq 8 ] || fail "the job on four ranks has no 8 losses."
for what in losses traffic; do
  cmp "$work/${what}_of_threads_4" "$work/${what}_of_rank_0" || fail "two hosts of two ranks have another $what than four threads."
done
echo "dspp: two hosts have the losses of two threads, and by node those of four."
