# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# ./dspp bench peers: PyTorch and DeepSpeed in a Python environment of their own, timed by turns with dspp. Sourced by ./dspp.

workloads_of_peers='A A2 B B2 C D E F'

has_python() { have python3 && python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
has_venv() { have python3 && python3 -c 'import ensurepip, venv' 2>/dev/null; }
# torch.compile's kernels include Python.h.
has_python_headers() {
  have python3 && python3 -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}

# compare_peers [workload...]: $json is the file for the rows, or empty.
compare_peers() {
  for workload in "$@"; do
    # shellcheck disable=SC2086 # a list of words
    case " $workloads_of_peers " in *" $workload "*) ;; *) unknown workload "$workload" $workloads_of_peers ;; esac
  done
  # shellcheck disable=SC2086 # a list of words
  [ $# -gt 0 ] || set -- $workloads_of_peers
  provide_peers
  provide_build
  provide_mpi optional
  folder=$root/build/cpu peers=$root/build/peers
  configure cpu "$folder" -DDSPP_BENCH=ON
  # shellcheck disable=SC2046 # a list of words
  build "$folder" $("$peers/bin/python" -B "$root/bench/peers/compare.py" --targets "$@") || exit 1
  # DeepSpeed compiles its update and its exchange, torch.compile its kernels: into build/, too.
  export TORCH_EXTENSIONS_DIR="$peers/extensions" TORCHINDUCTOR_CACHE_DIR="$peers/inductor" \
    PYTHONDONTWRITEBYTECODE=1 PATH="$peers/bin:$PATH"
  prepare_mpirun
  say "timing dspp and its peers by turns, five times; all workloads take hours"
  "$peers/bin/python" "$root/bench/peers/compare.py" --programs "$folder/bench/peers" --threads "$(cores)" \
    ${DSPP_PEER_ROUNDS:+--rounds "$DSPP_PEER_ROUNDS"} ${DSPP_PEER_ONLY:+--only "$DSPP_PEER_ONLY"} \
    --mpirun "$(command -v mpirun)" ${json:+--json "$json"} "$@" || exit 1
}

# provide_peers: build/peers, once; without PyTorch there is nothing to compare with, without DeepSpeed the rest goes on.
provide_peers() {
  peers=$root/build/peers
  [ ! -e "$peers/complete" ] || return 0
  provide optional python3 "Python 3.10 or later" has_python
  provide optional python3-venv "venv and pip of Python" has_venv
  if ! has_python || ! has_venv; then
    complain "./dspp bench peers needs Python 3.10 or later with venv and pip, but they were not found. Install python3-venv."
    exit 1
  fi
  if [ "$may_install" = no ]; then
    complain "./dspp bench peers needs PyTorch and DeepSpeed in $peers, but --no-install was given. Leave it out."
    exit 1
  fi
  provide optional python3-dev "Python.h, for torch.compile" has_python_headers
  say "installing PyTorch and DeepSpeed from PyPI into $peers (5.4 GB; log: $peers/install.log)"
  if ! mkdir -p "$peers" 2>/dev/null || ! (: >"$peers/install.log") 2>/dev/null; then
    refuse "this command needs to write the folder $peers, but it cannot. Make it writable, or copy the checkout to where you can write."
  fi
  if ! python3 -m venv "$peers" >"$peers/install.log" 2>&1 || ! install_wheels torch numpy setuptools; then
    tail -n 3 "$peers/install.log" >&2
    complain "PyTorch could not be installed from PyPI; the last lines of pip are above, the whole log is $peers/install.log."
    exit 1
  fi
  install_wheels deepspeed || say "DeepSpeed could not be installed from PyPI, see $peers/install.log; going on without it"
  : >"$peers/complete"
}

install_wheels() { "$peers/bin/python" -m pip install --no-cache-dir --disable-pip-version-check "$@" >>"$peers/install.log" 2>&1; }
