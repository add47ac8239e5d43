// SPDX-License-Identifier: Apache-2.0
// The dense runners of the random models, compiled once.
#include <laws/random_laws.hpp>

template struct dspp::laws::RandomRunner<dspp::Policy<dspp::F64>>;
template struct dspp::laws::RandomRunner<dspp::Policy<dspp::F64>, dspp::Sgd>;
template struct dspp::laws::RandomRunner<dspp::Policy<dspp::F64>, dspp::Muon>;
template struct dspp::laws::RandomRunner<dspp::Policy<dspp::F64>, dspp::Lamb>;
template struct dspp::laws::RandomRunner<dspp::Policy<dspp::F64>, dspp::laws::DrawnOptimizer,
                                         dspp::laws::RandomOwnModel>;
