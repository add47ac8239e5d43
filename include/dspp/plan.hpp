// SPDX-License-Identifier: Apache-2.0
/// Floor 13: strategies on paper: memory, operations and traffic of a step.
#pragma once

#include <dspp/plan/estimates.hpp>
#include <dspp/plan/plan.hpp>
#include <dspp/plan/segments_that_fit.hpp>
#include <dspp/plan/table.hpp>
