// SPDX-License-Identifier: Apache-2.0
/// A tensor of more dimensions than any operation knows.
// expected-error {{dspp: a tensor has at most 6 dimensions. Merge some of them.}}
#include <dspp/tensor/shape.hpp>

using namespace dspp;

#ifdef DSPP_TWIN
Shape<6> extents = shape(1, 1, 1, 1, 1, 1);
#else
Shape<7> extents = shape(1, 1, 1, 1, 1, 1, 1);
#endif
