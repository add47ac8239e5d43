// SPDX-License-Identifier: Apache-2.0
// The dense runner of the random models, compiled once.
#include <laws/random_laws.hpp>

template struct dspp::laws::RandomRunner<dspp::Policy<dspp::F64>>;
