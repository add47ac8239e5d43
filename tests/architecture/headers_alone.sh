#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers_alone.sh <root> <folder below include/dspp, or . or configured> <shared> <compiler> [flag...]: every header of the
# folder compiles alone and twice, without a warning. A dot means the headers that lie in include/dspp itself, `configured`
# those of any folder that read with which packages or for which processor they are compiled.
# headers_alone.sh <root> precompile <shared> <compiler> [flag...]: precompiles into the folder <shared> what many include.
#
# A header that includes a shared one, in any case and however deep, is read after it: what the shared one brings is there
# before the header's own first line either way, and nothing that the header forgets is.
set -eu
root=$1 folder=$2 shared=$3
shift 3
strict='-std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror -I.'
# From few includes to many: of those that a header includes, it is read after the last. g++ reads few headers, for which the
# others do not pay; it collects its garbage from 1 GiB on, which takes a tenth less time.
candidates='dspp/base/config.hpp dspp/base/error.hpp dspp/ops/kernels.hpp dspp/nn/layer.hpp'
instantiate=''
case $("$1" --version) in
  *clang*)
    candidates='dspp/base/config.hpp dspp/base/error.hpp dspp/comm/tcp/socket.hpp dspp/comm/communicator.hpp
      dspp/tensor/pool.hpp dspp/comm/any_communicator.hpp dspp/comm/threads/threads.hpp dspp/io/json.hpp
      dspp/io/safetensors.hpp dspp/ops/kernels.hpp dspp/ops/cpu/gemm/gemm.hpp dspp/autograd/tape.hpp dspp/nn/layer.hpp
      dspp/nn/linear.hpp dspp/engine/nonfinite.hpp'
    case " $* " in *' -DDSPP_COMPILED=1 '*)  # of which few headers are read: the others do not pay
      candidates='dspp/base/config.hpp dspp/base/error.hpp dspp/comm/communicator.hpp dspp/ops/kernels.hpp
        dspp/autograd/tape.hpp dspp/nn/layer.hpp dspp/engine/nonfinite.hpp' ;;
    esac
    # What a header instantiates, it else instantiates again in every unit that reads it.
    instantiate=-fpch-instantiate-templates
    ;;
  *) strict="$strict --param=ggc-min-heapsize=1048576" ;;
esac
cd "$root/include"

# shared_by <header>...: each header and the last of the candidates that it includes without a condition, or a dash.
shared_by() {
  find dspp -name '*.hpp' -exec awk '
    FNR == 1 { depth = 0 }
    /^[^#\/ ]/ { depth = 1000 }  # what is included after code comes too late
    /^# *if/ { ++depth }
    /^# *endif/ { --depth }
    depth == 0 && /^#include <dspp\// { sub(/^#include </, ""); sub(/>.*/, ""); print FILENAME, $0 }' {} + |
    awk -v candidates="$candidates" -v headers="$*" '
      function visit(header, i, n, list) {
        if (header in seen) return
        seen[header] = 1
        n = split(includes[header], list)
        for (i = 1; i <= n; ++i) visit(list[i])
      }
      { includes[$1] = includes[$1] " " $2 }
      END {
        count = split(headers, list_of_headers)
        shared_count = split(candidates, candidate)
        for (h = 1; h <= count; ++h) {
          delete seen
          visit(list_of_headers[h])
          last = "-"
          for (c = 1; c <= shared_count; ++c) if (candidate[c] in seen && candidate[c] != list_of_headers[h]) last = candidate[c]
          print list_of_headers[h], last
        }
      }'
}

if [ "$folder" = precompile ]; then
  rm -rf "$shared"
  mkdir -p "$shared"
  for header in $candidates; do
    [ -e "$header" ] || continue
    file=$shared/$(echo "$header" | tr / _)
    echo "#include <$header>" >"$file"
    # shellcheck disable=SC2086 # a list of words
    "$@" $strict $instantiate -x c++-header "$file" -o "$file.gch"
  done
  exit
fi

if [ "$folder" = . ]; then headers=$(find dspp -maxdepth 1 -name '*.hpp' | LC_ALL=C sort)
elif [ "$folder" = configured ]; then
  headers=$(grep -rlE 'DSPP_HAS_(OPENMP|ONEDNN|LIBURING|MPI|NCCL|CUDNN|AVX|SSE|F16C)|mpi|onednn' dspp --include='*.hpp' | LC_ALL=C sort)
else headers=$(find "dspp/$folder" -name '*.hpp' | LC_ALL=C sort); fi
checked=0 failed=0
# shellcheck disable=SC2086 # lists of words
while read -r header after; do
  checked=$((checked + 1))
  first=''
  [ "$after" = - ] || first="-include $shared/$(echo "$after" | tr / _)"
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" | "$@" $first $strict -x c++ -fsyntax-only - ||
    { failed=$((failed + 1)); echo "dspp: <$header> does not compile alone."; }
done <<END
$(shared_by $headers)
END
echo "dspp: $((checked - failed)) of $checked headers in $folder compile alone."
[ $failed -eq 0 ] && [ $checked -gt 0 ]
