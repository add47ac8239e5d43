// SPDX-License-Identifier: Apache-2.0
/// The harness refuses a mistake without an expected sentence.
static_assert(false, "dspp: Nobody looks for this.");
