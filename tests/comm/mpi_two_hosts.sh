#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpi_two_hosts.sh <mpirun> <test_mpi> <train_gpt> <train_gpt_by_node>: two named network namespaces act as two hosts,
# one rank on each, over TCP: the laws of a communicator, and the losses of thread ranks; two ranks on each, of a policy
# that shards and quantizes by node, have those of thread ranks on virtual nodes.
set -u
mpirun=$1 laws=$2 train=$3 by_node=$4 on_each=1

skip() { echo "dspp: skipped: $1"; exit 77; }
fail() { echo "dspp: $1"; exit 1; }

for tool in ip unshare hostname; do command -v $tool >/dev/null || skip "there is no $tool to make two hosts with"; done
case $("$mpirun" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) ;; *) skip "mpirun is not Open MPI's, whose agent starts the second host" ;; esac
unshare --uts hostname dspp-a 2>/dev/null || skip "this user may not name a host (unshare --uts)"
a=dspp-a-$$ b=dspp-b-$$
work=$(mktemp -d) || exit 1
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
{ ip netns add $a && ip netns add $b && ip link add va$$ netns $a type veth peer name vb$$ netns $b; } 2>/dev/null ||
  skip "this user may not make network namespaces (ip netns add)"
ip -n $a addr add 10.77.0.1/24 dev va$$
ip -n $b addr add 10.77.0.2/24 dev vb$$
for link in "$a lo" "$b lo" "$a va$$" "$b vb$$"; do ip -n "${link% *}" link set "${link#* }" up; done

# Open MPI calls it with the host and the command, as it would call ssh.
cat >"$work/agent" <<AGENT
#!/bin/sh
shift
exec unshare --uts sh -c 'hostname dspp-b; exec ip netns exec $b sh -c "\$0"' "\$*"
AGENT
chmod +x "$work/agent"

on_two_hosts() {
  unshare --uts sh -c 'hostname dspp-a; exec ip netns exec "$@"' sh $a "$mpirun" --mca plm_rsh_agent "$work/agent" \
    --mca btl tcp,self --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 \
    --host 10.77.0.1:$on_each,10.77.0.2:$on_each -n $((2 * on_each)) "$@"
}

[ "$(on_two_hosts hostname | sort | tr '\n' ' ')" = 'dspp-a dspp-b ' ] || fail "the two ranks are not on two hosts."
on_two_hosts env DSPP_TEST_HOSTS=2 "$laws" '--source-file=*/tests/comm/mpi*_test.cpp' --no-version || fail "the tests failed on two hosts."

# losses_of <folder> <command>...: the losses of a job that runs there.
losses_of() {
  mkdir "$1" && cd "$1" || exit 1
  shift
  "$@" --data "$work/text" --steps 8 --layers 1 --width 32 --heads 2 --sequence 16 --micro-batch 2 --sample 0 >out 2>&1 ||
    { cat out; fail "a job failed."; }
  sed -n 's/.*\("loss":[^,]*\).*\("gradient_norm":[^,]*\).*/\1 \2/p' runs/*/metrics.jsonl
}
seq 20000 >"$work/text"
losses_of "$work/threads" "$train" --ranks 2 >"$work/of_threads"
losses_of "$work/hosts" on_two_hosts "$train" >"$work/of_hosts"
[ "$(wc -l <"$work/of_threads")" -eq 8 ] || fail "the job on threads has no 8 losses."
cmp "$work/of_threads" "$work/of_hosts" || fail "two hosts have other losses than two threads."
on_each=2
losses_of "$work/four_threads" "$by_node" --ranks 4 --ranks-per-node 2 >"$work/of_four_threads"
losses_of "$work/four_ranks" on_two_hosts "$by_node" >"$work/of_four_ranks"
[ "$(wc -l <"$work/of_four_ranks")" -eq 8 ] || fail "the job on four ranks has no 8 losses."
cmp "$work/of_four_threads" "$work/of_four_ranks" || fail "two hosts of two ranks have other losses than four threads."
echo "dspp: two hosts have the losses of two threads, and by node those of four."
