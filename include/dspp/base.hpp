// SPDX-License-Identifier: Apache-2.0
/// Floor 0: errors, element types, random numbers, elementary functions.
#pragma once

#include <dspp/base/arithmetic.hpp>
#include <dspp/base/bf16.hpp>
#include <dspp/base/bits.hpp>
#include <dspp/base/config.hpp>
#include <dspp/base/crc32c.hpp>
#include <dspp/base/digest.hpp>
#include <dspp/base/element.hpp>
#include <dspp/base/error.hpp>
#include <dspp/base/f16.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/base/fixed_array.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/base/intrinsics.hpp>
#include <dspp/base/math.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/base/printable.hpp>
#include <dspp/base/profiler.hpp>
#include <dspp/base/stream_clock.hpp>
#include <dspp/base/types.hpp>
