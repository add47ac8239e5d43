#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers_alone.sh <root> <folder below include/dspp, or . or configured> <compiler> [flag...]: every header of the folder
# compiles alone and twice, without a warning. A dot means the headers that lie in include/dspp itself, `configured` those of
# any folder that read with which packages or for which processor they are compiled.
set -eu
root=$1 folder=$2
shift 2
cd "$root/include"
if [ "$folder" = . ]; then headers=$(find dspp -maxdepth 1 -name '*.hpp' | LC_ALL=C sort)
elif [ "$folder" = configured ]; then headers=$(grep -rlE 'DSPP_HAS_(OPENMP|ONEDNN|MPI|AVX|SSE|F16C)|mpi|onednn' dspp --include='*.hpp' | LC_ALL=C sort)
else headers=$(find "dspp/$folder" -name '*.hpp' | LC_ALL=C sort); fi
checked=0 failed=0
for header in $headers; do
  checked=$((checked + 1))
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
    "$@" -x c++ -std=c++20 -fsyntax-only -Wall -Wextra -Wconversion -Wshadow -Werror -I. - ||
    { failed=$((failed + 1)); echo "dspp: <$header> does not compile alone."; }
done
echo "dspp: $((checked - failed)) of $checked headers in $folder compile alone."
[ $failed -eq 0 ]
