// SPDX-License-Identifier: Apache-2.0
/// Floor 11: run(), the worlds that it makes, and how processes were started.
#pragma once

#include <dspp/launch/ending.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/launch/policy_facts.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/launch/run_options.hpp>
#include <dspp/launch/tcp_place.hpp>
#include <dspp/launch/world.hpp>
