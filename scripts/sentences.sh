# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# The messages of ./dspp: one sentence, and for an unknown word the nearest known one.

# shown <text>...: escaped as by base/printable.hpp, so that it cannot control a terminal; every byte of UTF-8 is escaped.
shown() {
  printf '%s\n' "$*" | LC_ALL=C awk '
    BEGIN {
      for (i = 1; i < 256; i++)
        if (i < 32 || i > 126) escaped[sprintf("%c", i)] = i == 9 ? "\\t" : i == 13 ? "\\r" : sprintf("\\x%02x", i)
    }
    NR > 1 { printf "%s", "\\n" }
    { for (i = 1; i <= length($0); i++) { c = substr($0, i, 1); printf "%s", c in escaped ? escaped[c] : c } }'
}

# put <text>: a line on the standard output.
put() { printf '%s\n' "$(shown "$*")" 2>/dev/null || refuse_output; }
say() { put "dspp: $*"; }
no_output='needs a standard output that takes what it prints, but it does not. Free space there, or send it elsewhere.'
complain() { printf 'dspp: %s\n' "$(shown "$*")" >&2; }
refuse() { complain "$@"; exit 2; }
refuse_output() { refuse "./dspp $no_output"; }

# is_word <text>: true if it is one word, as names in a list are.
is_word() { case $1 in '' | *[[:space:]]*) return 1 ;; esac; }

# nearest <word> <candidate>...: the candidate with the least edit distance to the word.
nearest() {
  { printf '%s\n' "$(shown "$1")"; shift; printf '%s\n' "$@"; } | awk '
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

# unknown <kind> <word> <candidate>...: refuses the word; lists all labels or benchmarks, since the help does not.
unknown() {
  kind=$1 word=$2 where='See ./dspp help.'
  shift 2
  case $kind in label | benchmark) where="The ${kind}s: $(printf '%s, ' "$@" | sed 's/, $/./')" ;; esac
  refuse "./dspp knows no $kind \"$word\", but it knows \"$(nearest "$word" "$@")\". $where"
}
