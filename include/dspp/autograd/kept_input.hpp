// SPDX-License-Identifier: Apache-2.0
/// The input of a recomputation until its backward: as it is, in the host's memory, or a part on each rank of Tp.
#pragma once

#include <algorithm>
#include <utility>

#include <dspp/autograd/context.hpp>
#include <dspp/comm/communicator.hpp>

namespace dspp::detail {

/// Where its context keeps it (KeptInputs). `shared`: every rank of Tp has the same elements.
///
/// Cost     of a part on each rank an all-gather over Tp in backward
/// Source   Rajbhandari et al. 2020, arXiv:1910.02054, section 6.1 (Pa, and Pa+cpu)
template <class T, int Rank, Device D>
class KeptInput {
 public:
  constexpr KeptInput(const Tensor<T, Rank, D>& x, Context<D>& context, bool shared) : shape_(x.shape()) {
    constexpr auto width = static_cast<Size>(sizeof(T));
    KeptInputs<D>& how = context.kept_inputs;
    const CommunicatorOf<D>* const tp = context.along.tp;
    parts_ = how.partitioned && shared && tp != nullptr ? tp->size() : 1;
    const Size count = shape_.count(), length = (count + parts_ - 1) / parts_;
    Memory<D>* const host = how.place_of(length * width);
    if (parts_ == 1 && host == nullptr) {
      whole_ = x;
      return;
    }
    const Size begin = parts_ == 1 ? 0 : std::min(count, length * tp->rank());
    part_ = Tensor<T, 1, D>::uninitialized(shape(length), host ? *host : *context.memory, Category::activations,
                                           "kept input");
    // Through the device's memory, whose profiler hears of it.
    D::copy(*context.memory, byte_of<D>(part_.storage(), 0), byte_of<D>(x.storage(), (x.offset() + begin) * width),
            std::min(length, count - begin) * width);
  }

  /// The input, in the device's memory. Once: what was kept is released.
  constexpr Tensor<T, Rank, D> take(Context<D>& context) {
    if (whole_) return std::exchange(whole_, {});
    const auto again = Tensor<T, 1, D>::uninitialized(shape(part_.count() * parts_), *context.memory,
                                                      Category::activations, "kept input");
    if (parts_ > 1)
      all_gather(*context.along.tp, buffer(static_cast<const T*>(part_.data()), part_.count()),
                 buffer(again.data(), again.count()), Purpose::activation);
    else
      copy_bytes<D>(again.storage(), 0, part_.storage(), 0, part_.bytes());
    part_ = {};
    return Tensor<T, Rank, D>::view(again.storage(), 0, shape_);
  }

 private:
  Shape<Rank> shape_;
  Size parts_ = 1;
  Tensor<T, Rank, D> whole_;
  Tensor<T, 1, D> part_;
};

}  // namespace dspp::detail
