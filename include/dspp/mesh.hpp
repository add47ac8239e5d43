// SPDX-License-Identifier: Apache-2.0
/// Floor 1: the mesh of ranks.
#pragma once

#include <dspp/mesh/axis.hpp>
#include <dspp/mesh/mesh.hpp>
#include <dspp/mesh/nodes.hpp>
