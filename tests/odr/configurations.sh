#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# configurations.sh <root> <compiler> [flag...]: two units compiled alike link, whatever the configuration; two compiled
# differently do not, and the linker names both. All pairs of the configurations below.
set -eu
root=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0 checked=0
after='[])[]'  # what linkers write after a name
complain() { echo "dspp: $1"; failures=$((failures + 1)); }

# unit <name> <header> [flag...]: compiles a unit that has the header and nothing else.
unit() {
  name=$1 header=$2
  shift 2
  echo "#include <$header>" >"$name.cpp"
  $compiler -std=c++20 -I"$root/include" "$@" -c "$name.cpp" -o "$name.o"
}

# pairs <linker's flag, or none> <common symbol> <name>...: links every pair; a unit and itself are two that are compiled alike.
pairs() {
  flag=$1 common=$2
  shift 2
  for a; do
    for b; do
      [ "$a" = "$b" ] || [ "$a" \< "$b" ] || continue
      checked=$((checked + 1))
      if said=$($compiler $flag main.o "$a.o" "$b.o" -o program 2>&1); then
        [ "$a" = "$b" ] || complain "units compiled for $a and for $b link $flag, but share classes of different layout."
        continue
      fi
      [ "$a" != "$b" ] || { complain "units compiled alike, for $a, do not link $flag: $said"; continue; }
      case $said in *"$common"*) ;; *) complain "the linker says nothing of $common, but: $said" ;; esac
      [ "$named" = no ] || for unit in $a $b; do
        case $said in *"dspp_unit_with"$(name_of $unit)$after*) ;; *) complain "the linker does not name $unit, but says: $said" ;; esac
      done
    done
  done
}

# The pattern of a configuration in the linker's error.
name_of() {
  case $1 in
    plain) echo 'out_openmp_without_onednn_for_*' ;;
    openmp) echo '_openmp_without_onednn_for_*' ;;
    onednn) echo 'out_openmp_with_onednn_for_*' ;;
    mpi) echo _mpi ;;
    no_mpi) echo out_mpi ;;
    liburing) echo _liburing ;;
    no_liburing) echo out_liburing ;;
    cudnn) echo _cudnn ;;
    no_cudnn) echo out_cudnn ;;
    nccl) echo _nccl ;;
    no_nccl) echo out_nccl ;;
    eigen*) echo "_eigen_aligned_to_${1#eigen}_static_*" ;;
    avx512*) echo "out_openmp_without_onednn_for_$1_fma_f16c" ;;
    compiled) echo 'out_openmp_without_onednn_for_*_compiled' ;;
    *) echo "out_openmp_without_onednn_for_$1" ;;
  esac
}

compiler=$*
x86=no
case $($compiler -dumpmachine) in x86_64*) x86=yes ;; esac
case $($compiler -Wl,--version 2>/dev/null) in *gold*) named=no ;; *) named=yes ;; esac  # gold names object files only

echo 'int main() {}' | $compiler -fPIC -x c++ -c - -o main.o
units='plain openmp onednn compiled'
unit plain dspp/base/config.hpp
unit openmp dspp/base/types.hpp -D_OPENMP=202011  # what -fopenmp defines, and clang without libomp does not know
unit onednn dspp/ops/gelu_form.hpp -DDSPP_WITH_ONEDNN=1
unit compiled dspp/base/types.hpp -DDSPP_COMPILED=1
if [ $x86 = yes ]; then
  units="$units sse42 avx avx_f16c avx2 avx2_fma avx512f avx512dq"
  unit sse42 dspp/base/types.hpp -msse4.2
  unit avx dspp/base/types.hpp -mavx
  unit avx_f16c dspp/ops/write.hpp -mavx -mf16c
  unit avx2 dspp/base/types.hpp -mavx2 -mno-f16c -mno-fma
  unit avx2_fma dspp/base/types.hpp -mavx2 -mfma -mno-f16c
  unit avx512f dspp/base/types.hpp -mavx512f -mfma -mf16c
  unit avx512dq dspp/base/types.hpp -mavx512dq -mfma -mf16c
fi
pairs '' dspp_units_need_one_configuration $units

unit mpi dspp/launch/mpi_choice.hpp -DDSPP_WITH_MPI=1
unit no_mpi dspp/launch/mpi_choice.hpp
pairs '' dspp_units_need_one_choice_of_mpi mpi no_mpi

unit nccl dspp/launch/nccl_choice.hpp -DDSPP_WITH_NCCL=1
unit no_nccl dspp/launch/nccl_choice.hpp
pairs '' dspp_units_need_one_choice_of_nccl nccl no_nccl
unit liburing dspp/io/liburing_choice.hpp -DDSPP_WITH_LIBURING=1
unit no_liburing dspp/io/liburing_choice.hpp
pairs '' dspp_units_need_one_choice_of_liburing liburing no_liburing

unit cudnn dspp/cuda/cudnn.hpp -DDSPP_WITH_CUDNN=1
unit no_cudnn dspp/cuda/cudnn.hpp
pairs '' dspp_units_need_one_choice_of_cudnn cudnn no_cudnn

for eigen in 16 64; do unit eigen$eigen dspp/ops/cpu/gemm/eigen.hpp -DEIGEN_MAX_ALIGN_BYTES=$eigen; done
pairs '' dspp_units_need_one_eigen_alignment eigen16 eigen64

unit plain dspp/base/types.hpp -fPIC -O2 -ffunction-sections -fdata-sections
unit openmp dspp/base/types.hpp -fPIC -O2 -ffunction-sections -fdata-sections -D_OPENMP=202011
pairs -shared dspp_units_need_one_configuration plain openmp
pairs -Wl,--gc-sections dspp_units_need_one_configuration plain openmp

echo "dspp: $checked pairs of units, $failures not as they should be."
[ $failures -eq 0 ]
