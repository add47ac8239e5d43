#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers_alone_test.sh <compiler>: a header that forgets an include is found, though others include a shared header.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT
mkdir -p "$house/include/dspp/base" "$house/include/dspp/nn"
shared='#include <dspp/base/error.hpp>'
failures=0

# header <folder/name> <line>...
header() {
  name=$1
  shift
  { echo '#pragma once'; printf '%s\n' "$@"; } >"$house/include/dspp/$name.hpp"
}

# expect <sound or found> <what> <line>...: a header with these lines is sound, or its fault is found.
expect() {
  wanted=$1 what=$2
  shift 2
  header nn/one "$@"
  result=sound
  said=$(sh "$here/headers_alone.sh" "$house" nn "$house/precompiled" "$compiler" 2>&1) || result=found
  [ $result = "$wanted" ] || { failures=$((failures + 1)); printf '%s: %s, not %s\n%s\n' "$what" $result "$wanted" "$said"; }
}

compiler=$1
header base/config '#include <cstddef>'
header base/error '#include <string>'
header base/other "$shared"
sh "$here/headers_alone.sh" "$house" precompile "$house/precompiled" "$compiler"
uses='namespace dspp { inline std::string name() { return {}; } }'
expect sound 'an own include' '#include <string>' "$uses"
expect sound 'an include of a shared header' "$shared" "$uses"
expect sound 'an include of a header that includes a shared one' '#include <dspp/base/other.hpp>' "$uses"
expect found 'no include' "$uses"
expect found 'another header' '#include <dspp/base/config.hpp>' "$uses"
expect found 'a shared header on a condition' '#if 0' "$shared" '#endif' "$uses"
expect found 'a shared header after the code' "$uses" "$shared"
expect found 'a shared header after a function' 'inline std::string name() { return {}; }' "$shared"
expect found 'a name that nobody includes' "$shared" 'namespace dspp { inline std::deque<int> all; }'
expect found 'a warning' "$shared" 'namespace dspp { inline void f(int unused) {} }'
[ $failures -eq 0 ]
