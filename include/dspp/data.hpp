// SPDX-License-Identifier: Apache-2.0
/// Side floor: text and batches of tokens.
#pragma once

#include <dspp/data/batches.hpp>
#include <dspp/data/text.hpp>
