#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/gpu_check.sh [--quick] [--build-only | --run-only]: kernels/ and the device on a real GPU, with one command. Builds the
# tests of tests/cuda/ and tests/cuda_device/ and the benchmarks with nvcc, runs the tests, times every kernel beside a copy and
# beside PyTorch, trains GPT-2 models beside PyTorch, and runs short tests under compute-sanitizer. Writes gpu_check.json and a
# table.
#
#   --quick       fewer repetitions, less of PyTorch, and the smallest model of each only
#   --build-only  builds and runs nothing
#   --run-only    builds nothing: the programs lie in DSPP_GPU_BUILD, built on another machine from the same sources
#   DSPP_DEPS     a folder with include/doctest/doctest.h, include/eigen3 and, for cuDNN, include/cudnn_frontend.h, for a machine
#                 without a network
#   DSPP_GPU_OUT  where results go; default build/gpu/results
#   DSPP_COMMIT   the commit to record where there is no repository
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${DSPP_GPU_BUILD:-$root/build/gpu}
results=${DSPP_GPU_OUT:-$build/results}
quick='' only_build='' only_run=''
for argument in "$@"; do
  case $argument in
    --quick) quick=--quick ;;
    --build-only) only_build=yes ;;
    --run-only) only_run=yes ;;
    *)
      echo "dspp: gpu_check.sh needs --quick, --build-only, --run-only or nothing, but got \"$argument\"." >&2
      exit 2
      ;;
  esac
done
PATH=$PATH:/usr/local/cuda/bin
failures=0
stage() { printf '%s\n' "== $1 ($(($(date +%s) - began)) s)"; }
failed() {
  printf '%s\n' "dspp: gpu_check: $1" >&2
  failures=$((failures + 1))
}
began=$(date +%s)
mkdir -p "$build" "$results"

[ -z "$only_run" ] || [ -z "$only_build" ] || {
  echo "dspp: gpu_check.sh needs one of --build-only and --run-only, but got both." >&2
  exit 2
}

# ---- build ----------------------------------------------------------------------------------------------------------
build_all() {
  command -v nvcc >/dev/null || {
    echo "dspp: gpu_check.sh needs nvcc, but finds none. Install the CUDA Toolkit, or add its bin/ to PATH." >&2
    exit 2
  }
  generator='Unix Makefiles'
  command -v ninja >/dev/null && generator=Ninja
  stage 'build'
  {
    cmake -S "$root/bench/gpu" -B "$build" -G "$generator" -DDSPP_DEPS="${DSPP_DEPS:-}" -DCMAKE_CUDA_COMPILER="$(command -v nvcc)" &&
      cmake --build "$build" -j "${DSPP_JOBS:-$(nproc)}"
  } >"$results/build.log" 2>&1 || {
    tail -40 "$results/build.log" >&2
    echo "dspp: gpu_check.sh needs a build that succeeds, but it failed. Read $results/build.log." >&2
    exit 1
  }
  grep -E 'warning|Warning' "$results/build.log" | head -5
  stage 'built'
}
[ -n "$only_run" ] || build_all
for program in gpu_tests gpu_device_tests gpu_bench gpu_train; do
  [ -x "$build/$program" ] || {
    echo "dspp: gpu_check.sh needs $program in $build, but it is not there. Build it by --build-only, or name its folder by DSPP_GPU_BUILD." >&2
    exit 2
  }
done
[ -z "$only_build" ] || exit 0

# ---- run ------------------------------------------------------------------------------------------------------------
if ! nvidia-smi --query-gpu=name --format=csv >/dev/null 2>&1; then
  echo "dspp: gpu_check.sh needs a GPU, but nvidia-smi finds none. Use --build-only here." >&2
  exit 2
fi
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)
commit=${DSPP_COMMIT:-$(git -C "$root" rev-parse HEAD 2>/dev/null)}

stage 'tests'
timeout 120 "$build/gpu_tests" --no-version >"$results/tests.log" 2>&1 || failed 'tests fail on the GPU; read tests.log'
tail -60 "$results/tests.log"

stage 'tests of the device'
timeout 120 "$build/gpu_device_tests" --no-version >"$results/device_tests.log" 2>&1 ||
  failed 'the device fails on the GPU; read device_tests.log'
tail -20 "$results/device_tests.log"

stage 'benchmark'
timeout 100 "$build/gpu_bench" $quick >"$results/times.tsv" 2>"$results/bench.log" || failed 'the benchmark fails; read bench.log'
cat "$results/bench.log"
if python3 -c 'import torch; torch.cuda.init()' 2>/dev/null; then
  seconds=120
  [ -z "$quick" ] || seconds=60
  stage 'PyTorch'
  timeout $((seconds + 40)) python3 "$root/bench/gpu/pytorch_bench.py" $quick --seconds $seconds \
    >>"$results/times.tsv" 2>"$results/pytorch.log" || failed 'PyTorch fails or is slow; read pytorch.log'
  tail -5 "$results/pytorch.log"
fi

stage 'trainings'
models=''
[ -z "$quick" ] || models='--only 124M'
# shellcheck disable=SC2086 # two words, or none
timeout 150 "$build/gpu_train" $quick $models >>"$results/times.tsv" 2>"$results/train.log" || failed 'trainings fail; read train.log'
cat "$results/train.log"
if python3 -c 'import torch; torch.cuda.init()' 2>/dev/null; then
  stage 'trainings of PyTorch'
  # shellcheck disable=SC2086
  timeout 260 python3 "$root/bench/gpu/pytorch_train.py" $quick $models >>"$results/times.tsv" 2>"$results/pytorch_train.log" ||
    failed 'trainings of PyTorch fail or are slow; read pytorch_train.log'
  grep tokens "$results/pytorch_train.log"
fi

stage 'compute-sanitizer'
sanitized=''
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck; do
    if timeout "${DSPP_SANITIZER_SECONDS:-40}" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 \
      "$build/gpu_tests" --no-version --test-case-exclude='*if CUDA refuses*,*cuDNN*' \
      >"$results/$tool.log" 2>&1; then
      verdict=passed
    else
      code=$?
      verdict=failed
      [ "$code" != 124 ] || verdict=unfinished
      failed "$tool: $verdict; read $tool.log"
    fi
    tail -2 "$results/$tool.log"
    sanitized="$sanitized${sanitized:+, }\"$tool\": \"$verdict\""
  done
fi

# ---- results --------------------------------------------------------------------------------------------------------
stage 'results'
counts='s/.*test cases: *\([0-9]*\) | *\([0-9]*\) passed | *\([0-9]*\) failed.*/\1, "passed": \2, "failed": \3/p'
tests_passed=$(sed -n "$counts" "$results/tests.log" | tail -1)
device_passed=$(sed -n "$counts" "$results/device_tests.log" | tail -1)
awk -F '\t' -v gpu="$gpu" -v driver="$driver" -v commit="$commit" -v date="$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
  -v tests="$tests_passed" -v device="$device_passed" -v sanitized="$sanitized" -v json="$results/gpu_check.json" '
  { key = $2 "\t" $3 "\t" $4
    if ($1 == "dspp" && !(key in own) && $2 ~ /^train /) trained[++trainings] = key
    else if ($1 == "dspp" && !(key in own)) order[++count] = key
    if ($1 == "dspp") bytes[key] = $5
    if ($1 == "dspp") own[key] = $6
    if ($1 ~ /^torch_eager/ && !(key in eager && eager[key] < $6)) eager[key] = $6
    if ($1 ~ /^torch_compile/ && !(key in compiled && compiled[key] < $6)) compiled[key] = $6
    if ($1 == "dspp" && $2 == "copy") copy = $5 / $6 }
  END {
    printf "{\n  \"gpu\": \"%s\", \"driver\": \"%s\", \"commit\": \"%s\", \"date\": \"%s\",\n", gpu, driver, commit, date > json
    printf "  \"tests\": {\"cases\": %s},\n  \"device_tests\": {\"cases\": %s},\n", (tests ? tests : "0"), (device ? device : "0") > json
    printf "  \"sanitizers\": {%s},\n  \"kernels\": [\n", sanitized > json
    printf "%-22s %-6s %-14s %10s %8s %7s %10s %10s\n", "kernel", "type", "shape", "us", "GB/s", "of copy", "eager us", "compile us"
    for (i = 1; i <= count; i++) {
      key = order[i]; split(key, k, "\t"); rate = bytes[key] / own[key]; if (!copy) copy = rate
      by_eager = (key in eager) ? eager[key] : ""; by_compile = (key in compiled) ? compiled[key] : ""
      printf "%-22s %-6s %-14s %10.1f %8.0f %6.1f%% %10s %10s\n", k[1], k[2], k[3], own[key], rate / 1000, 100 * rate / copy, by_eager, by_compile
      printf "    {\"name\": \"%s\", \"type\": \"%s\", \"shape\": \"%s\", \"bytes\": %s, \"microseconds\": %s, \"of_copy\": %.3f%s%s}%s\n",
        k[1], k[2], k[3], bytes[key], own[key], rate / copy, (by_eager ? ", \"torch_eager\": " by_eager : ""),
        (by_compile ? ", \"torch_compile\": " by_compile : ""), (i < count ? "," : "") > json
    }
    printf "  ],\n  \"trainings\": [\n" > json
    printf "%-22s %-6s %-14s %10s %10s %10s %10s\n", "training", "type", "shape", "tokens/s", "peak MiB", "eager", "compile"
    for (i = 1; i <= trainings; i++) {
      key = trained[i]; split(key, k, "\t"); split(k[3], extents, "x"); tokens = extents[1] * extents[2] * 1e6
      by_eager = (key in eager) ? sprintf("%.0f", tokens / eager[key]) : ""
      by_compile = (key in compiled) ? sprintf("%.0f", tokens / compiled[key]) : ""
      printf "%-22s %-6s %-14s %10.0f %10.0f %10s %10s\n", k[1], k[2], k[3], tokens / own[key], bytes[key] / 1048576, by_eager, by_compile
      printf "    {\"name\": \"%s\", \"type\": \"%s\", \"shape\": \"%s\", \"peak_bytes\": %s, \"tokens_per_second\": %.0f%s%s}%s\n",
        k[1], k[2], k[3], bytes[key], tokens / own[key], (by_eager ? ", \"torch_eager\": " by_eager : ""),
        (by_compile ? ", \"torch_compile\": " by_compile : ""), (i < trainings ? "," : "") > json
    }
    printf "  ]\n}\n" > json
  }' "$results/times.tsv" | tee "$results/table.txt"
stage "done, $failures failed"
[ "$failures" = 0 ]
