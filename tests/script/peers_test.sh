#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# peers_test.sh <project> <python>: bench/peers/ without PyTorch: its driver's arithmetic and sentences, with programs that
# print what is written here in place of dspp and its peers.
set -u
project=$1 python=$2
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
fails() { failures=$((failures + 1)); printf 'FAILED  %s\n' "$1"; printf '%s\n' "${out-}" | sed 's/^/        /'; }

# drive <argument>...: the driver with the programs in $work; sets status and out, stderr included.
drive() {
  out=$("$python" "$project/bench/peers/compare.py" --programs "$work" --peers "$work" --threads 6 "$@" 2>&1)
  status=$?
}
prints() { case $out in *"$1"*) ;; *) fails "does not print: $1" ;; esac; }
exits() { [ "$status" -eq "$1" ] || fails "exits with $status, not $1"; }

# A program of dspp: round N takes N s a step, but for one slow step; it notes what it was given.
cat >"$work/peers_zero0_f32" <<'PROGRAM'
#!/bin/sh
folder=${0%/*}
echo "dspp $OMP_NUM_THREADS $*" >>"$folder/calls"
round=$(grep -c '^dspp' "$folder/calls")
echo "{\"items\": 1200, \"seconds\": [$round, $round, 90], \"resident_mib\": 100, \"loss\": 5.5, \"parameters\": 7, \"limit\": 1300}"
PROGRAM
for stage in 1 2 3; do cp "$work/peers_zero0_f32" "$work/peers_zero${stage}_f32"; done
# The peer takes 2, 2, 12, 4 and 20 s: ratios of pace 2/1, 2/2, 12/3, 4/4 and 20/5.
cat >"$work/pytorch_train.py" <<'PROGRAM'
import json, os, sys
folder = os.path.dirname(__file__)
with open(folder + "/calls", "a") as calls:
    print("peer", os.environ["OMP_NUM_THREADS"], *sys.argv[1:], file=calls)
with open(folder + "/calls") as calls:
    seconds = [2, 2, 12, 4, 20][sum(line.startswith("peer") for line in calls) - 1]
print("a line of something else")
print(json.dumps({"items": 1200, "seconds": [seconds] * 3, "resident_mib": 400, "loss": 5.6, "parameters": 7}))
PROGRAM
chmod +x "$work"/peers_*

drive --only 'eager f32' --json "$work/rows.json" A; exits 0
[ "$(cut -c 1-6 "$work/calls" | tr '\n' ,)" = 'dspp 6,peer 6,dspp 6,peer 6,dspp 6,peer 6,dspp 6,peer 6,dspp 6,peer 6,' ] ||
  fails "does not alternate five times: $(cat "$work/calls")"
[ "$(grep -c -- '--layers 6 --width 384 --heads 6 --sequence 256 --batch 8 --vocabulary 256 --steps 10' "$work/calls")" -eq 10 ] ||
  fails "does not give both the same sizes: $(cat "$work/calls")"
# Medians: 1200 / 3 of dspp, 1200 / 4 of the peer; of the ratios, 2: neither 400 / 300 nor a mean.
prints '| A | PyTorch eager | f32 | 1 | 400 | 1,300 | 300 | 2.00 | 100 | 400 | 0.25 | '
"$python" - "$work/rows.json" <<'CHECK' || fails 'writes other rows'
import json, sys
rows = json.load(open(sys.argv[1]))
keys = ["workload", "peer", "dtype", "ranks", "stage", "ours", "theirs", "ratio", "unit"]
assert all(list(row) == keys for row in rows), rows
pace, memory, steps = rows
assert list(pace.values()) == ["A", "PyTorch eager", "f32", "1", 0, 400, 300, 2, "tokens/s"], pace
assert (memory["ours"], memory["theirs"], memory["ratio"], memory["unit"]) == (100, 400, 0.25, "MiB"), memory
# Of 3, 3, 90 the 90th less the 10th percentile is 87, of the median 3; the peer's steps have none, hence no ratio.
assert (steps["ours"], steps["theirs"], steps["ratio"], steps["unit"]) == (2900, 0, None, "% step spread"), steps
CHECK

# what_is_said <peer's program> <reason>: it fails alone, the other goes on, and a dash stands for its figures.
what_is_said() {
  : >"$work/calls"
  printf '%s\n' 'import sys' "if '--compile' in sys.argv:" "$1" "else: exec(open(__file__ + '.right').read())" >"$work/pytorch_train.py"
  drive --only f32 --json "$work/rows.json" A; exits 0
  prints '| A | PyTorch compile | f32 | 1 | - | - | - | - |'
  prints "- A PyTorch compile, f32, 1: $2"
  prints '| A | PyTorch eager | f32 | 1 | 400 |'
  grep -q '"peer": "PyTorch compile".*"theirs": null, "ratio": null, "unit": "tokens/s", "reason": ' "$work/rows.json" ||
    fails 'has no reason in its rows'
}
mv "$work/pytorch_train.py" "$work/pytorch_train.py.right"
what_is_said '  raise RuntimeError("no C++ compiler")' 'RuntimeError: no C++ compiler.'
what_is_said '  sys.exit("ValueError: of the rank\n  self.handleError(record)\nx.ChildFailedError: by torchrun")' 'ValueError: of the rank.'
what_is_said '  sys.exit(3)' 'it ended with status 3.'
what_is_said '  print("not JSON")' 'it ended with status 0.'
run='print("{\"items\": 1200, \"seconds\": [1], \"resident_mib\": 1, \"loss\": 5.5, \"parameters\": 7}"'
what_is_said "  $run.replace('7', '8'))" 'it trains 8 parameters, dspp 7.'
what_is_said "  $run.replace('1200', '600'))" "its step has 600 items, dspp's 1200."
what_is_said "  $run.replace('5.5', 'NaN'))" "its first loss is nan, dspp's 5.500."
what_is_said "  $run.replace('5.5', '.5'))" 'its figures are no JSON: {"items": 1200'
what_is_said "  $run.replace('5.5', '5.9'))" "its first loss is 5.900, dspp's 5.500."

: >"$work/calls"
drive --seconds 0.5 --only 'compile f32' A; exits 1
prints "its first loss is 5.900"
echo 'import time; time.sleep(9)' >"$work/pytorch_train.py"
drive --seconds 0.5 --only 'eager f32' A; exits 1; prints 'it took more than 0.5 s.'
# What a run started ends with it, also what has a session of its own and hears no signal.
cat >"$work/pytorch_train.py" <<PROGRAM
import subprocess, time
subprocess.Popen(["sh", "-c", "trap '' TERM; echo \$\$ >$work/rank; sleep 60; :"], start_new_session=True)
time.sleep(60)
PROGRAM
drive --seconds 2 --only 'eager f32' A; exits 1; prints 'it took more than 2 s.'
[ -s "$work/rank" ] || fails 'started no rank'
if grep -q '^State:[[:space:]]*[DRSTt]' "/proc/$(cat "$work/rank")/status" 2>/dev/null; then fails 'leaves a rank running that took too long'; fi
drive --only 'eager f23' A; exits 1
prints 'dspp: bench peers needs a comparison whose peer, type and ranks contain "eager f23", but A has none.'
rm "$work/peers_zero0_f32"
drive --only 'eager f32' A; exits 1; prints 'PyTorch eager, f32, 1: dspp: [Errno 2] No such file'

# Two ranks share the threads; MPI's are compared where mpirun is.
: >"$work/calls"
printf '#!/bin/sh\necho "mpirun $*" >>"%s/calls"\nexit 1\n' "$work" >"$work/mpirun" && chmod +x "$work/mpirun"
drive --mpirun "$work/mpirun" --only 'ZeRO 3 f32' A2
grep -q '^dspp 3 .*--ranks 2$' "$work/calls" || fails "does not share the threads: $(cat "$work/calls")"
grep -q "^mpirun -n 2 $work/peers_zero3_f32 " "$work/calls" || fails "starts no MPI ranks: $(cat "$work/calls")"

# The default job: train_gpt's figures of its steps, by its files, and the held-out loss of both.
echo /a/text >"$work/default_text" && printf %s "$(cat "$work/default_text")" >"$work/default_text"
cat >"$work/peers_text_f32" <<PROGRAM
#!/bin/sh
echo "dspp \$OMP_NUM_THREADS \$*" >>"$work/calls"
mkdir -p runs/now
echo '{"params": 7, "val_loss": 1.0123}' >job.json
for end in 1 2 4 6 8; do echo "{\"loss\": 5.5, \"seconds\": \$end}"; done >runs/now/metrics.jsonl
echo "12 % of the GEMM limit (1300)"
PROGRAM
cat >"$work/pytorch_text.py" <<'PROGRAM'
import json, os, sys
with open(os.path.dirname(__file__) + "/calls", "a") as calls:
    print("peer", os.environ["OMP_NUM_THREADS"], *sys.argv[1:], file=calls)
print(json.dumps({"items": 512, "seconds": [4] * 3, "resident_mib": 400, "loss": 5.6, "parameters": 7, "nats": 1.0567}))
PROGRAM
chmod +x "$work/peers_text_f32" && : >"$work/calls"
drive --rounds 1 --only 'eager f32' --json "$work/rows.json" F; exits 0
prints '| F | PyTorch eager | f32 | 2 threads | 256 | 1,300 | 128 | 2.00 | '
prints "- F PyTorch eager, f32: held out, dspp's loss is 1.0123 nats a byte, the peer's 1.0567."
grep -q '"ours": 1.0123, "theirs": 1.0567, "ratio": 0.957.*, "unit": "nats/byte"' "$work/rows.json" || fails 'has no held-out loss in its rows'
grep -q '^dspp 3 --micro-batch 4 .*--layers 2 --width 208 --heads 8 --sequence 64 --seconds 55 --ranks 2 --data /a/text$' "$work/calls" ||
  fails "starts another default job: $(cat "$work/calls")"
grep -q '^peer 6 --layers 2 .*--seconds 55 --data /a/text --dtype f32$' "$work/calls" || fails "starts another peer: $(cat "$work/calls")"
sed -i 's/"loss": 5.6/"loss": 6.1/' "$work/pytorch_text.py"
drive --rounds 1 --only 'eager f32' F; exits 1; prints "its first loss is 6.100, dspp's 5.500."
printf '#!/bin/sh\nexit 3\n' >"$work/peers_text_f32"
drive --rounds 1 --only 'eager f32' F; exits 1; prints 'F PyTorch eager, f32, 2 threads: dspp: it ended with status 3.'

drive --targets A E F; exits 0
[ "$out" = 'peers_text_bf16
peers_text_f32
peers_zero0_bf16
peers_zero0_f32' ] || fails 'names other targets of A, E and F'
drive --targets A2; exits 0
[ "$(printf '%s\n' "$out" | grep -c '^peers_zero[0-3]_')" -eq 8 ] || fails 'names other targets of A2'
drive G; exits 1; prints 'dspp: bench peers knows no workload "G", but it knows A, A2, B, B2, C, D, E, F.'

# ./dspp names the workloads that the driver has.
known=$("$python" -c 'import sys; sys.argv = ["", "--targets"]; sys.path.insert(0, "'"$project"'/bench/peers")
import compare; print(*compare.workloads)' | tail -n 1)
grep -qx "workloads_of_peers='$known'" "$project/scripts/peers.sh" || fails "knows $known, ./dspp others"
for file in "$project"/bench/peers/*.py; do
  case $file in */compare.py) continue ;; esac
  [ "$(grep -c '' "$file")" -le 60 ] || fails "$file has more than 60 lines"
  "$python" -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$file" || fails "$file is no Python"
done

[ $failures -eq 0 ] || exit 1
echo "bench peers: all is as expected"
