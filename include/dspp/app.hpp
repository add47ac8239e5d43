// SPDX-License-Identifier: Apache-2.0
/// Floor 14: what programs with a command line need: options, progress, interrupts.
#pragma once

#include <dspp/app/interrupt.hpp>
#include <dspp/app/options.hpp>
#include <dspp/app/output.hpp>
#include <dspp/app/progress.hpp>
