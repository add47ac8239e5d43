#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# warnings.sh <root> <compiler> [flag...]: every header, and the program that instantiates most of them (train_gpt with
# tensor parallelism and a loss scale), compile without a warning under -I and a strict project's flags. What clang++ is
# not asked for is listed below with the reason.
set -eu
root=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if "$1" --version | grep -q clang; then
  flags='-Weverything'
  # dspp is C++20, and these are about older languages.
  for older in c++98-compat c++98-compat-pedantic c++98-compat-local-type-template-args c++20-compat pre-c++14-compat \
    pre-c++17-compat pre-c++17-compat-pedantic pre-c++20-compat pre-c++20-compat-pedantic; do
    flags="$flags -Wno-$older"
  done
  flags="$flags -Wno-padded"                        # says where a struct has gaps
  flags="$flags -Wno-float-equal"                   # exact comparisons are meant: with 0, with the same number before
  flags="$flags -Wno-weak-vtables"                  # a header has no other unit that its vtables could be in
  flags="$flags -Wno-ctad-maybe-unsupported"        # the standard library's lock_guard is one of those
  flags="$flags -Wno-comma"                         # `if (...) a = 1, b = 2;` is meant
  flags="$flags -Wno-switch-enum"                   # a default is meant; -Wswitch stays
  flags="$flags -Wno-switch-default"                # no default is meant: -Wswitch finds a missing enumerator
  flags="$flags -Wno-documentation-unknown-command" # comments quote escapes and expressions: \n, \p{L}
  flags="$flags -Wno-disabled-macro-expansion"      # the C library's sa_handler
  flags="$flags -Wno-unknown-warning-option"        # of an older clang++ than the one that a name above is from
  flags="$flags -Wno-unsafe-buffer-usage"           # every pointer that is indexed
else
  # Those that need an optimiser (-Wnull-dereference) find nothing where code is not generated.
  flags='-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wnon-virtual-dtor
    -Woverloaded-virtual -Wdouble-promotion -Wformat=2 -Wimplicit-fallthrough -Wcast-qual -Wcast-align -Wduplicated-cond
    -Wlogical-op -Wextra-semi -Wsuggest-override -Wundef -Wredundant-decls'
fi
echo 'using TrainPolicy = Policy<Zero<3>, F16, Tp<2>>;' >"$work/policy.hpp"
whole=$(cd "$root/include" && for header in dspp/*.hpp; do printf -- '-include %s ' "$header"; done)
# shellcheck disable=SC2086 # lists of words
"$@" -std=c++20 -fsyntax-only $flags -Werror -I"$root/include" $whole \
  -DDSPP_TRAIN_POLICY_HEADER="\"$work/policy.hpp\"" "$root/examples/train_gpt.cpp" ||
  { echo "dspp: a user's flags find a warning in the headers; it is above. Mend the header."; exit 1; }
echo 'dspp: the headers compile without a warning.'
