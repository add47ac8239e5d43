// SPDX-License-Identifier: Apache-2.0
/// The two functions called GELU.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// exact: x Phi(x) with the normal distribution function Phi; tanh: its approximation, as in GPT-2.
///
/// Source   Hendrycks and Gimpel 2016, Gaussian Error Linear Units
enum class GeluForm { exact, tanh };

namespace ops {
using dspp::GeluForm;
}

}  // namespace dspp
