// SPDX-License-Identifier: Apache-2.0
#include <laws/random_laws.hpp>

template struct dspp::laws::RandomRunner<dspp::Policy<dspp::F64>>;
