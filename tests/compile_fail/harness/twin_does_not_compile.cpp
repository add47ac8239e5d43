// SPDX-License-Identifier: Apache-2.0
/// The harness refuses a mistake whose twin is wrong as well: such a file proves nothing.
// expected-error {{dspp: This is said either way.}}
static_assert(false, "dspp: This is said either way.");
