// SPDX-License-Identifier: Apache-2.0
/// The harness refuses a mistake that does not say which sentence it expects.
static_assert(false, "dspp: Nobody looks for this.");
