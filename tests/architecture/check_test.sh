#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plants every breach in a small house and looks for its sentence; a clean house must pass.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT
failures=0

build_clean_house() {
  rm -rf "${house:?}"/*
  mkdir -p "$house/rules" "$house/include/dspp/base" "$house/include/dspp/nn" "$house/include/dspp/io" "$house/include/dspp/engine" "$house/tests/nn"
  cp "$here/floors.txt" "$house/rules/floors.txt"
  : >"$house/rules/waivers.txt"
  header base/config '#if defined(_OPENMP)'
  header base/types '#include <dspp/base/config.hpp>'
  header nn/linear '#include <dspp/base/types.hpp>'
  header io/file '#include <dspp/base/types.hpp>'
  header engine/run '#include <dspp/io/file.hpp>' '#include <dspp/nn/linear.hpp>'
  printf '// SPDX-License-Identifier: Apache-2.0\n' >"$house/tests/nn/linear_test.cpp"
}

# header <folder/name> [line...]
header() {
  name=$1
  shift
  { printf '// SPDX-License-Identifier: Apache-2.0\n#pragma once\n'; [ $# -eq 0 ] || printf '%s\n' "$@"; } >"$house/include/dspp/$name.hpp"
}

# expect <what> <exit status> <sentence part>: runs the check on the house as it is now.
expect() {
  status=0
  said=$(sh "$here/check.sh" "$house" "$house/rules") || status=$?
  case $said in *"$3"*) found=1 ;; *) found=0 ;; esac
  if [ "$status" -ne "$2" ] || [ $found -eq 0 ]; then
    printf 'dspp: the check of a house with %s gave status %s and said\n%s\n' "$1" "$status" "$said"
    failures=1
  fi
  build_clean_house
}

build_clean_house
expect 'no breach' 0 ''
header base/types '#include <dspp/nn/linear.hpp>'
expect 'an upward include' 1 'include/dspp/base/types.hpp:3 includes <dspp/nn/linear.hpp> of floor 6, but base/ is floor 0.'
header nn/linear '#include <dspp/io/file.hpp>'
expect 'a floor that uses a side folder' 1 'io/ stands aside: only floor 11 and above may use it.'
header io/file '#include <dspp/nn/linear.hpp>'
expect 'a side folder on a high floor' 1 'but io/ stands on floors up to 2.'
mkdir -p "$house/include/dspp/data" && header data/shards '#include <dspp/io/file.hpp>'
expect 'a side folder that may use another' 0 ''
mkdir -p "$house/include/dspp/data" && header data/shards && header io/file '#include <dspp/data/shards.hpp>'
expect 'a side folder that may not use another' 1 'data/ stands aside: only floor 11 and above may use it.'
header nn/linear '#include <dspp/base/absent.hpp>'
expect 'an include of nothing' 1 'but there is no such header.'
header nn/linear '#include <CLI/CLI.hpp>'
expect 'CLI11 below app/' 1 'includes CLI11, which only dspp'"'"'s own programs need. Only app/ may.'
mkdir -p "$house/include/dspp/app" && header app/options '#include <dspp/base/types.hpp>' '#include <CLI/CLI.hpp>'
expect 'CLI11 in app/' 0 ''
header nn/linear '#include "linear_detail.hpp"'
expect 'an include with quotes' 1 'includes with quotes.'
mkdir -p "$house/include/dspp/attic" && header attic/box
expect 'a folder without a floor' 1 'lies in a folder that floors.txt does not name.'
header nn/linear 'using namespace std;'
expect 'an opened namespace' 1 'opens a namespace for everybody'
header io/file '#include <dspp/base/types.hpp>' 'namespace dspp {'
expect 'a side folder that declares in dspp' 1 'include/dspp/io/file.hpp:4 declares names in dspp, but those of io/ are in dspp::io.'
header io/file '#include <dspp/base/types.hpp>' 'namespace dspp::io {'
expect 'a side folder with its namespace' 0 ''
header nn/linear '#define LINEAR 1'
expect 'a public macro' 1 'does not begin with DSPP_'
header nn/linear '#include <dspp/base/types.hpp>' 'if constexpr (D::real)'
expect 'a floor that asks what a device is' 1 'include/dspp/nn/linear.hpp:4 touches a device'
header nn/linear '#include <dspp/base/types.hpp>' 'total += x.data()[i];'
expect 'a floor that touches memory' 1 'include/dspp/nn/linear.hpp:4 touches a device'
for breach in 'using On = typename D::Imitated;' 'std::memmove(to, from, 8);' 'std::copy_n(x.data(), count, out);' \
  'fill_n(y.value().data_from(begin), count, 0);' 'const float one = *x.data_from(i);' 'auto first = x.data_from(i)[0];'; do
  header nn/linear '#include <dspp/base/types.hpp>' "$breach"
  expect "a floor with $breach" 1 'include/dspp/nn/linear.hpp:4 touches a device'
done
for breach in 'total += p[i];' 'total += *p;' 'for (;;) p[i] = 0;'; do
  header nn/linear '#include <dspp/base/types.hpp>' '  const auto* p = x.data();' '  if (count > 0) {' '  }' "  $breach"
  expect "a floor that looks behind a pointer: $breach" 1 'include/dspp/nn/linear.hpp:7 touches a device'
done
header nn/linear '#include <dspp/base/types.hpp>' '    T* const p = x.data_from(i);' '    launch(p, count * p_count);' '  }' '  total += p[i];'
expect 'a pointer that is given on, and another of its name' 0 ''
header nn/linear '#include <dspp/base/types.hpp>' 'if constexpr (!D::synchronous) return;'
expect 'a floor that asks whether a device is synchronous' 1 'include/dspp/nn/linear.hpp:4 asks whether a device is synchronous'
header engine/run '#include <dspp/io/file.hpp>' 'inline constexpr bool known = DeviceOf<P>::synchronous;'
echo 'synchronous include/dspp/engine/run.hpp one place' >"$house/rules/waivers.txt"
expect 'the same with a waiver' 0 ''
header io/file '#include <dspp/base/types.hpp>' 'std::memcpy(to, from, 8);'
expect 'a side folder with memory of the host' 0 ''
header nn/linear '#include <dspp/base/types.hpp>' '#ifdef _OPENMP'
expect 'a header that reads the compilation' 1 'include/dspp/nn/linear.hpp:4 reads a macro of the compilation'
header nn/linear '#include <dspp/base/types.hpp>' '#if !defined(DSPP_WITH_MPI) || __AVX2__'
expect 'a header that reads it in an expression' 1 'include/dspp/nn/linear.hpp:4 reads a macro of the compilation'
printf '// SPDX-License-Identifier: Apache-2.0\n#elif defined(__AVX__)\n' >"$house/tests/nn/linear_test.cpp"
expect 'a test that reads it' 1 'tests/nn/linear_test.cpp:2 reads a macro of the compilation'
header base/types
expect 'a header without the configuration' 1 'include/dspp/base/types.hpp includes no header of dspp'
header nn/linear "// $(printf '%0121d' 0)"
expect 'a long line' 1 'has 124 columns'
header nn/linear '#include <dspp/base/types.hpp>' "// $(printf '\303\251%.0s' $(seq 100))"
expect 'a line of a hundred accented letters' 0 ''
header nn/linear '#include <dspp/base/types.hpp>' "require(true, \"dspp: $(printf '%0121d' 0)\");"
expect 'a long sentence on the line of its require' 0 ''
header nn/linear '#include <dspp/base/types.hpp>' "require(true, \"dspp: $(printf '%0176d' 0)\");"
expect 'a sentence up to column 200' 0 ''
header nn/linear '#include <dspp/base/types.hpp>' "require(true, \"dspp: $(printf '%0177d' 0)\");"
expect 'a sentence that is too long' 1 'has 201 columns, but a line with a sentence has at most 200.'
header nn/linear "// TO""DO: later"
expect 'work left behind' 1 'leaves work behind'
yes '' | head -n 500 >>"$house/include/dspp/nn/linear.hpp"
expect 'a long header' 1 'lines, but a header has at most 500.'
yes '' | head -n 500 >>"$house/include/dspp/nn/linear.hpp"
echo 'long_header include/dspp/nn/linear.hpp one table' >"$house/rules/waivers.txt"
expect 'a long header with a waiver' 0 ''
echo 'long_header include/dspp/nn/linear.hpp one table' >"$house/rules/waivers.txt"
expect 'a waiver that nothing needs' 1 'needs no waiver'
printf '#pragma once\n' >"$house/include/dspp/nn/linear.hpp"
expect 'no licence line' 1 'does not begin with the line'
printf '// SPDX-License-Identifier: Apache-2.0\n' >"$house/include/dspp/nn/linear.hpp"
expect 'no pragma once' 1 'has no `#pragma once`'
printf '// SPDX-License-Identifier: Apache-2.0\n' >"$house/tests/nn/strange_test.cpp"
expect 'a test without a header' 1 'mirrors no header'
printf '// SPDX-License-Identifier: Apache-2.0\n' >"$house/tests/nn/linear_bias_test.cpp"
expect 'a test about a part of a header' 0 ''
printf '// SPDX-License-Identifier: Apache-2.0\n' >"$house/tests/nn/strange_test.cpp"
echo 'no_header tests/nn/stra* one table' >"$house/rules/waivers.txt"
expect 'a test without a header and with a waiver' 0 ''
mkdir -p "$house/tests/odd" && printf '// SPDX-License-Identifier: Apache-2.0\n' >"$house/tests/odd/x_test.cpp"
expect 'an odd test folder' 1 'mirrors no floor'
exit $failures
