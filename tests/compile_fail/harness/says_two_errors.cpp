// SPDX-License-Identifier: Apache-2.0
// A second mistake beside the only one that is expected.
// expected-error {{dspp: the harness needs a sentence, but this is one.}}
// one-error
static_assert(sizeof(int) == 0, "dspp: the harness needs a sentence, but this is one.");
static_assert(sizeof(int) == 1, "dspp: the harness needs one error, but this is the second.");
