# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# How ./dspp speaks: one sentence, and for a wrong word the nearest right one.

# Words of the command line are echoed without what a terminal would obey.
shown() { printf '%s' "$*" | LC_ALL=C tr '\001-\037\177' '[?*]'; }
say() { printf 'dspp: %s\n' "$*" 2>/dev/null || refuse "./dspp $no_output"; }
no_output='needs a standard output that takes what it prints, but it does not. Free space there, or send it elsewhere.'
complain() { printf 'dspp: %s\n' "$(shown "$*")" >&2; }
refuse() { complain "$@"; exit 2; }

# nearest <word> <candidate>...: the candidate that the fewest edits turn into the word.
nearest() {
  printf '%s\n' "$@" | awk '
    function least(a, b, c) { if (b < a) a = b; return c < a ? c : a }
    function distance(a, b,    i, j, d) {
      for (i = 0; i <= length(a); i++) d[i, 0] = i
      for (j = 0; j <= length(b); j++) d[0, j] = j
      for (i = 1; i <= length(a); i++)
        for (j = 1; j <= length(b); j++)
          d[i, j] = least(d[i-1, j] + 1, d[i, j-1] + 1, d[i-1, j-1] + (substr(a, i, 1) != substr(b, j, 1)))
      return d[length(a), length(b)]
    }
    NR == 1 { word = $0; next }
    { far = distance(word, $0); if (NR == 2 || far < best) { best = far; found = $0 } }
    END { print found }'
}

# unknown <kind> <word> <candidate>...: the help has them all but labels and benchmarks, which the build names.
unknown() {
  kind=$1 word=$2 where='See ./dspp help.'
  shift 2
  case $kind in label | benchmark) where="The ${kind}s: $(printf '%s, ' "$@" | sed 's/, $/./')" ;; esac
  refuse "./dspp knows no $kind \"$word\", but it knows \"$(nearest "$word" "$@")\". $where"
}
