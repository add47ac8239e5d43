// SPDX-License-Identifier: Apache-2.0
/// The input of a recomputation until its backward: as it is, in the host's memory, in a file, or a part on each rank
/// of Tp.
#pragma once

#include <algorithm>
#include <utility>

#include <dspp/autograd/context.hpp>
#include <dspp/comm/communicator.hpp>

namespace dspp::detail {

/// Bytes in an InputFile, until they are taken. Move-only.
template <Device D>
class BytesInFile {
 public:
  constexpr BytesInFile() = default;
  constexpr BytesInFile(InputFile<D>& file, const Storage<Memory<D>>& from, Size offset, Size bytes)
      : file_(&file), number_(file.keep(file, from, offset, bytes)) {}
  constexpr BytesInFile(BytesInFile&& other) noexcept
      : file_(std::exchange(other.file_, nullptr)), number_(other.number_) {}
  constexpr BytesInFile& operator=(BytesInFile&& other) noexcept {
    std::swap(file_, other.file_), std::swap(number_, other.number_);
    return *this;
  }
  constexpr ~BytesInFile() {
    if (file_) file_->drop(*file_, number_);
  }

  constexpr explicit operator bool() const { return file_ != nullptr; }
  constexpr void take(const Storage<Memory<D>>& to) {
    InputFile<D>& file = *std::exchange(file_, nullptr);
    file.take(file, number_, to);
  }

 private:
  InputFile<D>* file_ = nullptr;
  std::int64_t number_ = 0;
};

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
    if (parts_ == 1 && host == nullptr && how.file == nullptr) {
      whole_ = x;
      return;
    }
    const Size begin = parts_ == 1 ? 0 : std::min(count, length * tp->rank());
    length_ = length;
    if (how.file != nullptr) {
      in_file_ = {*how.file, x.storage(), (x.offset() + begin) * width, std::min(length, count - begin) * width};
      return;
    }
    part_ = Tensor<T, 1, D>::uninitialized(shape(length), host ? *host : *context.memory, Category::activations,
                                           "kept input");
    // Through the device's memory, whose profiler hears of it.
    D::copy(*context.memory, byte_of<D>(part_.storage(), 0), byte_of<D>(x.storage(), (x.offset() + begin) * width),
            std::min(length, count - begin) * width);
  }

  /// The input, in the device's memory. Once: what was kept is released.
  constexpr Tensor<T, Rank, D> take(Context<D>& context) {
    if (whole_) return std::exchange(whole_, {});
    const auto again =
        Tensor<T, 1, D>::uninitialized(shape(length_ * parts_), *context.memory, Category::activations, "kept input");
    if (in_file_ && parts_ > 1)
      part_ = Tensor<T, 1, D>::uninitialized(shape(length_), *context.memory, Category::activations, "kept input");
    if (in_file_) in_file_.take(part_ ? part_.storage() : again.storage());
    if (parts_ > 1)
      all_gather(*context.along.tp, buffer(static_cast<const T*>(part_.data()), part_.count()),
                 buffer(again.data(), again.count()), Purpose::activation);
    else if (part_)
      copy_bytes<D>(again.storage(), 0, part_.storage(), 0, part_.bytes());
    part_ = {};
    return Tensor<T, Rank, D>::view(again.storage(), 0, shape_);
  }

 private:
  Shape<Rank> shape_;
  Size parts_ = 1, length_ = 0;  ///< of this rank's part, padded so that all have the same
  Tensor<T, Rank, D> whole_;
  Tensor<T, 1, D> part_;
  BytesInFile<D> in_file_;
};

}  // namespace dspp::detail
