#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tcp_two_hosts.sh <train_gpt>: two named network namespaces act as two hosts, one rank on each, connected by TCP: the
# losses of thread ranks with a token, and a sentence without one or with another.
set -u
train=$1

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
mkdir "$work/threads" "$work/first" "$work/second"
small="--data $work/text --steps 8 --layers 1 --width 32 --heads 2 --sequence 16 --micro-batch 2 --sample 0 --timeout 3"

# train_in <folder> <command>...: trains there; what it printed is in out.
train_in() {
  cd "$work/$1" || exit 1
  shift
  "$@" $small >out 2>&1
}
# rank <number> <namespace> <host> <folder> [<token>]
rank() {
  [ $# -lt 5 ] || export DSPP_TOKEN="$5"
  export RANK=$1 WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500
  train_in "$4" unshare --uts sh -c 'hostname "$1"; shift; exec ip netns exec "$@"' sh "$3" "$2" "$train"
}
# both [<token of rank 0> <token of rank 1>]: the status of rank 0
both() {
  (rank 1 $b dspp-b second ${2:+"$2"}) &
  (rank 0 $a dspp-a first ${1:+"$1"})
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
echo "dspp: two hosts have the losses of two threads."
