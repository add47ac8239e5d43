// SPDX-License-Identifier: Apache-2.0
/// The harness refuses a mistake whose twin does not compile either.
// expected-error {{dspp: This is said either way.}}
static_assert(false, "dspp: This is said either way.");
