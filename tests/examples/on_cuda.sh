#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# on_cuda.sh <project> <folder> <compiler> <flag>...: the examples with a line `using P = Policy<...>;` compile with
# Policy<..., Cuda> and <dspp/launch/cuda_rank.hpp>, and no other change, as programs that link dspp::compiled and dspp::cuda. They
# are one unit, which is written to the folder: what they include, once and first, then each in a namespace of its own.
set -eu
cd "$1"
unit=$2/examples_on_cuda.cpp compiler=$3
shift 3
mkdir -p "${unit%/*}"
programs=$(grep -l '^using P = Policy<.*>;$' examples/*.cpp)
[ "$(printf '%s\n' "$programs" | wc -l)" -eq "$(grep -l '^using P = ' examples/*.cpp | wc -l)" ] || {
  printf '%s\n' "dspp: each example that runs a policy P needs a line 'using P = Policy<...>;', but one has another." >&2
  exit 1
}
{
  printf '%s\n' '#include <dspp/launch/cuda_rank.hpp>'
  # shellcheck disable=SC2086 # no name in the project has a space
  cat $programs | grep '^#include ' | awk '!seen[$0]++'
  for program in $programs; do
    name=${program##*/}
    printf 'namespace %s {\n#line 1 "%s"\n' "${name%.cpp}" "$program"
    sed 's/^using P = Policy<\(.*\)>;$/using P = Policy<\1, Cuda>;/' "$program"
    printf '}\n'
  done
} >"$unit"
"$compiler" -std=c++20 -DDSPP_COMPILED=1 -Iexamples "$@" -x c++ -fsyntax-only "$unit" || {
  printf '%s\n' "dspp: an example needs to compile when its policy alone becomes one for Cuda, but one does not; see above." >&2
  exit 1
}
