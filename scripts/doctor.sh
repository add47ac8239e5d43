# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# ./dspp doctor: lists each tool found; for a missing one, why it is missing and what it is for. Sourced by ./dspp.

# found <name> <what it is, or empty> <why not> <what it gives>: a line of the doctor's report.
found() {
  if [ -n "$2" ]; then put "$(printf '  %-18s yes   %s' "$1" "$2")"
  else put "$(printf '  %-18s no    %s. It gives: %s.' "$1" "$3" "$4")"; fi
}

# first_line_of <command>...: the first line of its output, or nothing.
first_line_of() { have "$1" && "$@" 2>/dev/null | head -n 1; }

# header_version <header> <macro>...: the macros' values joined by dots, or nothing if the header is not found.
header_version() {
  header=$1
  shift
  { printf '#include <%s>\n' "$header"; for macro in "$@"; do printf 'dspp_doctor %s\n' "$macro"; done; } |
    "$CXX" -x c++ -E -P -I/usr/include/eigen3 -I/usr/local/include/eigen3 -I/usr/local/cuda/include - 2>/dev/null |
    awk '$1 == "dspp_doctor" { out = out (out == "" ? "" : ".") $2 } END { print out }'
}

processor_has() { grep -m 1 '^flags' /proc/cpuinfo 2>/dev/null | tr ' ' '\n' | grep -x "$1" | head -n 1; }

# has_ring: sets ring, if the kernel gives a program an io_uring, or else no_ring, the reason.
has_ring() {
  ring='' no_ring='liburing.h was not found (package liburing-dev)'
  has_liburing || return 0
  no_ring='a program with liburing did not run'
  ring_program=$(mktemp) || return 0
  if printf '%s\n' '#include <liburing.h>' '#include <cstdio>' '#include <cstring>' 'int main() { io_uring ring;' \
    'const int error = io_uring_queue_init(8, &ring, 0); std::puts(error ? std::strerror(-error) : ""); return error != 0; }' |
    "$CXX" -x c++ -std=c++20 -o "$ring_program" - -luring >/dev/null 2>&1; then
    refusal=$("$ring_program" 2>/dev/null) && ring="liburing$(dpkg-query -W -f ' ${Version}' liburing-dev 2>/dev/null)"
    [ -z "$refusal" ] || no_ring="the kernel refuses it: $refusal"
  fi
  rm -f "$ring_program"
}

why_not() { if [ -n "$seen" ]; then printf '%s is not enough' "$seen"; else printf 'not installed'; fi; }

doctor() {
  [ $# -eq 0 ] || unknown option "$1" --no-install
  missing=
  put "required to build"
  compiler=; has_compiler && compiler=$seen || missing=yes
  found "C++20 compiler" "$compiler" "$(why_not) (package g++, 12 or later)" "everything"
  cmake=; has_cmake && cmake=$(cmake_version) || missing=yes
  found CMake "$cmake" "$(why_not) (package cmake, 3.25 or later)" "the build"
  ninja=; has_ninja && ninja=$(first_line_of ninja --version) || missing=yes
  found Ninja "$ninja" "not installed (package ninja-build)" "the build"
  eigen=; has_eigen && eigen=$(header_version Eigen/Core EIGEN_WORLD_VERSION EIGEN_MAJOR_VERSION EIGEN_MINOR_VERSION) || missing=yes
  found Eigen "$eigen" "its headers were not found (package libeigen3-dev)" "matrix products"
  cli11=; has_cli11 && cli11=$(header_version CLI/CLI.hpp CLI11_VERSION_MAJOR CLI11_VERSION_MINOR CLI11_VERSION_PATCH) || missing=yes
  found CLI11 "$cli11" "CLI/CLI.hpp was not found (package libcli11-dev)" "the programs' options"
  put "required by ./dspp test and ./dspp bench"
  found doctest "$(header_version doctest/doctest.h DOCTEST_VERSION_MAJOR DOCTEST_VERSION_MINOR DOCTEST_VERSION_PATCH)" \
    "doctest/doctest.h was not found (package doctest-dev)" "the tests"
  benchmark=; has_benchmark && benchmark=$(dpkg-query -W -f '${Version}' libbenchmark-dev 2>/dev/null || echo found)
  found "Google Benchmark" "$benchmark" "benchmark/benchmark.h was not found (package libbenchmark-dev)" "the benchmarks"
  put "optional"
  found clang++ "$(first_line_of clang++ --version)" "not installed (package clang)" "the headers and the catalogue of mistakes through a second compiler, and the fuzzer of the parsers"
  found oneDNN "$(header_version dnnl.h DNNL_VERSION_MAJOR DNNL_VERSION_MINOR DNNL_VERSION_PATCH)" \
    "dnnl.h was not found (package libdnnl-dev)" "faster matrix products"
  has_ring
  found io_uring "$ring" "$no_ring" "transfers of Offload<..., Disk> by io_uring, in place of pread and pwrite; ./dspp bench disk compares them"
  found ccache "$(first_line_of ccache --version)" "not installed (package ccache)" "a second build of the same sources in a fraction of the time"
  openmp=; has_header omp.h -fopenmp && openmp="-fopenmp"
  found OpenMP "$openmp" "the compiler takes no -fopenmp" "more than one thread per rank"
  found MPI "$(first_line_of mpirun --version)" "mpirun was not found (packages openmpi-bin, libopenmpi-dev)" "ranks as processes, on one machine or several: ./dspp train --mpi 2"
  nvcc=nvcc; have nvcc || nvcc=/usr/local/cuda/bin/nvcc
  found "CUDA compiler" "$("$nvcc" --version 2>/dev/null | sed -n 's/^.*release \([0-9.]*\).*/\1/p')" \
    "nvcc was not found (the CUDA toolkit)" "dspp::cuda, the kernels of Policy<..., Cuda>; and the headers and the catalogue through nvcc as host code"
  found "CUDA device" "$(first_line_of nvidia-smi -L)" "nvidia-smi found none" "a place to run kernels: ./dspp train --device cuda"
  found NCCL "$(header_version nccl.h NCCL_MAJOR NCCL_MINOR NCCL_PATCH)" \
    "nccl.h was not found (package libnccl-dev of NVIDIA's repository)" "collectives between GPUs (DSPP_WITH_NCCL, docs/cuda.md)"
  put "machine"
  memory=$(awk '/^MemTotal:/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo 2>/dev/null)
  put "$(printf '  %-18s %s' cores "$(cores)")"
  put "$(printf '  %-18s %s' memory "$memory")"
  found AVX-512 "$(processor_has avx512f)" "the processor has no avx512f" "wider vectors"
  found "AVX-512 bf16" "$(processor_has avx512_bf16)" "the processor has no avx512_bf16" "bf16 products faster than f32 on AMD's processors; on Intel's without AMX they are slower, and are done in f32"
  found "AMX bf16" "$(processor_has amx_bf16)" "the processor has no amx_bf16" "bf16 products several times faster than f32, through oneDNN"
  if [ -z "$missing" ]; then say "this machine can train."
  else say "something required is absent; ./dspp train installs it where it may."; fi
}
