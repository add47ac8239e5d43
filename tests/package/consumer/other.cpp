// SPDX-License-Identifier: Apache-2.0
/// The program's second translation unit.
#include <dspp/base/bf16.hpp>

float rounded(float value) { return static_cast<float>(dspp::bf16(value)); }
