// SPDX-License-Identifier: Apache-2.0
/// The program's second translation unit.
#include <dspp/dspp.hpp>

float rounded(float value) { return static_cast<float>(dspp::bf16(value)); }
