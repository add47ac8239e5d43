// SPDX-License-Identifier: Apache-2.0
/// What the engine does with a batch of any type: its fields one by one.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <dspp/autograd/variable.hpp>
#include <dspp/base/list.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/ops/bits.hpp>

namespace dspp {

namespace detail {

template <class T, int Rank, class D>
constexpr const Tensor<T, Rank, D>& tensor_of(const Tensor<T, Rank, D>& field) {
  return field;
}
template <class T, int Rank, Device D, class Where>
constexpr const Tensor<T, Rank, D>& tensor_of(const Variable<T, Rank, D, Where>& field) {
  static_assert(std::is_same_v<typename Where::tp, Invariant>,
                "dspp: a batch needs fields that every rank of Tp has whole, but this one is cut over Tp or pending. "
                "Declare it Input<P, T, Rank>.");
  return field.value();
}

/// Calls f(name, field) for each field of a batch. (Its visit is not const, as that of a layer.)
template <class B, class F>
constexpr void for_each_field(const B& batch, F f) {
  B fields = batch;
  fields.visit([&](const char* name, const auto& field) { f(name, field); });
}
template <class B, class F>
constexpr void for_each_tensor(const B& batch, F f) {
  for_each_field(batch, [&](const char* name, const auto& field) { f(name, tensor_of(field)); });
}

/// Calls f(weights) with the target weights that a field carries, if any.
template <class Field, class F>
constexpr void with_target_weights(const Field& field, F f) {
  if constexpr (requires { field.target_weights; })
    if (field.target_weights) f(field.target_weights);
}

/// The extent of dimension 0 of the first field that is set; 0 if none is.
template <class B>
constexpr Size rows_of(const B& batch) {
  Size rows = 0;
  for_each_tensor(batch, [&](const char*, const auto& tensor) {
    static_assert(std::remove_cvref_t<decltype(tensor)>::rank > 0,
                  "dspp: a batch needs fields with a row for every sample, but this one has rank 0. Give it an extent "
                  "for the samples, or the number to the model.");
    if (rows == 0 && tensor) rows = tensor[0];
  });
  return rows;
}

/// The position in the random streams of a batch, before which there are `before` others of at most micro_batch samples
/// in its step, unless it has a first_sample.
template <class B>
constexpr RandomPosition position_of(const B& batch, const PhiloxKey& key, Size step, [[maybe_unused]] Size before,
                                     [[maybe_unused]] Size micro_batch) {
  const Size rows = rows_of(batch);
  if constexpr (requires { batch.first_sample; })
    return {key, step, batch.first_sample, rows};
  else
    return {key, step, before * (rows > micro_batch ? rows : micro_batch), rows};
}

/// A digest of what a batch holds; 0 on paper.
///
/// Cost     reads it once; synchronizes
template <class B>
constexpr std::uint64_t digest_of(const B& batch) {
  std::uint64_t digest = 0;
  const auto add = [&]<class T, int Rank, class D>(const Tensor<T, Rank, D>& tensor) {
    if (!tensor || tensor.count() == 0) return;
    const Size width = tensor.bytes() / tensor.count();
    digest =
        ops::digest<D>(tensor.memory(), byte_of<D>(tensor.storage(), tensor.offset() * width), tensor.bytes(), digest);
  };
  for_each_field(batch, [&](const char*, const auto& field) {
    add(tensor_of(field));
    with_target_weights(field, add);
  });
  return digest;
}

/// The extents of all fields, one after another; 0 for those of a field that is not set.
template <class B>
constexpr List<Size> extents_of(const B& batch) {
  List<Size> extents;
  for_each_tensor(batch, [&](const char*, const auto& tensor) {
    for (int d = 0; d < std::remove_cvref_t<decltype(tensor)>::rank; ++d) extents.push_back(tensor ? tensor[d] : 0);
  });
  return extents;
}

/// A batch whose fields are create(name, shape), of type Tensor, with these extents, as extents_of gives them.
template <class B, class Create>
B batch_of(const List<Size>& extents, Create create) {
  B batch{};
  std::size_t next = 0;
  batch.visit([&](const char* name, auto& field) {
    using Field = std::remove_cvref_t<decltype(tensor_of(field))>;
    Shape<Field::rank> shape{};
    for (int d = 0; d < Field::rank; ++d) shape[d] = extents[next++];
    if (shape.count() > 0) field = create.template operator()<Field>(name, shape);
  });
  return batch;
}

/// A batch of zeros.
template <class B, class Memory>
B zeros_of(const List<Size>& extents, Memory& memory) {
  return batch_of<B>(extents, [&]<class Field>(const char*, const auto& shape) {
    return Field::zeros(shape, memory, Category::data, "repeated batch");
  });
}

[[noreturn]] void refuse_unset(const char* field);
[[noreturn]] void refuse_empty(const char* field, const std::string& shape);
[[noreturn]] void refuse_rows(const char* field, Size rows, Size of_first);

}  // namespace detail

/// The fields of a batch as constants on a tape: for models that run outside of an engine's forward.
///
/// Example  weights.no_grad([&](const auto& model, auto& tape) { return model(on_tape(batch, tape)).value(); });
template <class B, Device D>
constexpr B on_tape(const B& batch, Tape<D>& tape) {
  B fields = batch;
  fields.visit([&](const char*, auto& field) {
    static_assert(!std::is_const_v<std::remove_reference_t<decltype(field)>>,
                  "dspp: loss(batch) needs a batch whose visit may change its fields, but this one is const. Write "
                  "constexpr void visit(auto&& f) without const.");
    static_assert(Tracked<decltype(field)>,
                  "dspp: loss(batch) needs a batch of inputs, which a tape takes, but this field is another type. "
                  "Declare it Input<P, T, Rank>.");
    field.put_on(tape);
  });
  return fields;
}

/// Throws   Error(usage) if a field was never set; Error(shape) if one is empty, or has other rows
template <class B>
constexpr void check_batch(const B& batch) {
  const Size rows = detail::rows_of(batch);
  detail::for_each_tensor(batch, [&](const char* name, const auto& tensor) {
    if (!tensor) detail::refuse_unset(name);
    if (tensor.count() == 0) detail::refuse_empty(name, to_string(tensor.shape()));
    if (tensor[0] != rows) detail::refuse_rows(name, tensor[0], rows);
  });
}

namespace detail {
/// Throws   Error(usage) for a batch that was made for another accumulate, if it says so
template <class B>
constexpr void check_accumulate([[maybe_unused]] const B& batch, [[maybe_unused]] const BatchSizes& sizes) {
  if constexpr (requires { batch.accumulate; }) {
    // clang-format off
    require(batch.accumulate == 0 || batch.accumulate == sizes.accumulate, "dspp: Engine needs batches made for its own accumulate, but got one made for another. Give both the same BatchSizes.",
            ErrorCode::usage,
            {{"accumulate of the batch", batch.accumulate}, {"accumulate of the engine", sizes.accumulate}});
    // clang-format on
  }
}
}  // namespace detail

/// Compares a rank's batch with the sizes of its engine: plan() does not cover a larger one. A micro_batch of 1 with no
/// sequence, the default, means any number of rows. Which extents are those of sequences only new_batch knows.
///
/// Throws   Error(usage) for another accumulate; Error(shape) for more rows than micro_batch
template <class B>
constexpr void check_batch_fits(const B& batch, const BatchSizes& sizes, int) {
  detail::check_accumulate(batch, sizes);
  if (sizes.micro_batch <= 1 && sizes.sequence == 0) return;
  const Size rows = detail::rows_of(batch);
  // clang-format off
  require(rows <= sizes.micro_batch, "dspp: Engine needs batches of at most its micro_batch, but got a larger one. Give both the same sizes.", ErrorCode::shape,
          {{"rows", rows}, {"micro_batch", sizes.micro_batch}});
  // clang-format on
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_unset(const char* field) {
  fail(ErrorCode::usage, std::string("dspp: a batch needs all of its fields, but '") + field +
                             "' was never set. Give it a Tensor, or leave it out of visit.");
}
DSPP_INLINE void detail::refuse_empty(const char* field, const std::string& shape) {
  fail(ErrorCode::shape, std::string("dspp: a batch needs at least one element in every field, but '") + field +
                             "' is " + shape + ". Leave the batch out.");
}
DSPP_INLINE void detail::refuse_rows(const char* field, Size rows, Size of_first) {
  fail(ErrorCode::shape, std::string("dspp: a batch needs a row for every sample in each field, but '") + field +
                             "' has " + std::to_string(rows) + " and the first field " + std::to_string(of_first) +
                             ". Give all the same extent of dimension 0.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
