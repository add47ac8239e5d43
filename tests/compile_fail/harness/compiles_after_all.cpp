// SPDX-License-Identifier: Apache-2.0
/// The harness refuses a mistake that compiles.
// expected-error {{dspp: This is never said.}}
static_assert(true, "dspp: This is never said.");
