// SPDX-License-Identifier: Apache-2.0
/// The kernels that a device implements for the operations of this floor: their names, and the arguments of `run`.
///
/// Pointers are to the device's memory, tensors row-major and dense. T is the element type of values, G that of the
/// gradients of parameters, T or Compute<T>; sums are in Compute<T>. Results are rounded once. Workspaces are allocated
/// by the operation, of the size of the kernel's `scratch_count`.
#pragma once

#include <cstdint>

#include <dspp/base/element.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/ops/attention_kernels.hpp>
#include <dspp/ops/flat_range.hpp>
#include <dspp/ops/gelu_form.hpp>
#include <dspp/ops/quantized_parts.hpp>
#include <dspp/ops/step_numbers.hpp>
#include <dspp/ops/write.hpp>
#include <dspp/tensor/kernel.hpp>

namespace dspp {

/// Whether an operand enters a product as it lies in memory, or transposed.
enum class Transpose : bool { no, yes };

/// causal: position i attends to positions 0 .. i; full: to all.
enum class AttentionMask { causal, full };

/// Which keys a query attends to, and what becomes of its scores: scale q k^T, capped, plus a bias if there is one.
struct AttentionRule {
  AttentionMask mask = AttentionMask::causal;
  Size window = 0;     ///< keys fewer than so many positions away, the query's own counted; 0: any
  double softcap = 0;  ///< scores become softcap tanh(score / softcap), as in Gemma 2; 0: they stay
  double scale = 0;    ///< 0: 1 / sqrt(head_dim)

  /// Values that no shape shows: the mask, and of the others those that are not the default.
  constexpr void describe(auto&& f) const {
    f("mask", static_cast<int>(mask));
    if (window > 0) f("window", window);
    if (softcap > 0) f("softcap", softcap);
    if (scale > 0) f("scale", scale);
  }
  friend constexpr bool operator==(const AttentionRule&, const AttentionRule&) = default;
};

/// The target of a position that does not count: no loss, no gradient. PyTorch's ignore_index.
inline constexpr std::int32_t ignored_target = -100;

namespace ops {
using dspp::AttentionKernels;
using dspp::AttentionMask;
using dspp::AttentionRule;
using dspp::Transpose;
}  // namespace ops

/// The probabilities that cross-entropy wants of a row: `each` of every class, and `target` more of the row's own.
struct TargetProbabilities {
  double target = 1;
  double each = 0;
};

namespace kernels {

// ---- elements -------------------------------------------------------------------------------------------------------

/// (F f, Size count, U* y, const T* x): y[i] = f(x[i]), computed in Compute<T>. y may be x.
template <class F, class U, class T>
struct Pointwise;
/// (F f, Size count, U* z, const T* x, const V* y): z[i] = f(x[i], y[i]), computed in Compute<U>. z may be x or y.
template <class F, class U, class T, class V>
struct PointwisePair;
/// Extents, the innermost first, and the strides of two operands: 0 where an operand has one element for all.
struct Repeats {
  int dimensions = 0;
  Size extents[8] = {}, x_strides[8] = {}, y_strides[8] = {};
};
/// (F f, Repeats at, T* z, const T* x, const T* y): z[i, ...] = f(x[i, ...], y[i, ...]), computed in Compute<T>. z is
/// dense.
template <class F, class T>
struct PointwiseBroadcast;
/// (F f, Size count, T* da, T* db, const T* a, const T* b, const T* dy): f(a[i], b[i], dy[i], da, db) writes both, in
/// Compute<T>. da or db may be dy.
template <class F, class T>
struct PointwiseVjpOfTwo;
/// (Size count, T* y, const T* x, const Compute<T>* by, double factor): y[i] = factor * *by * x[i], the first product
/// in f64. y may be x.
template <class T>
struct ScaleBy;
/// (Size outer, Size run, T* y, Size y_stride, const T* x, Size x_stride): run i of `outer`, each of `run` elements,
/// from x + i x_stride to y + i y_stride.
template <class T>
struct CopyRuns;
/// (Size outer, Size run, T* y, Size y_stride): zeros where CopyRuns writes.
template <class T>
struct ZeroRuns;
/// (Size count, T* x, T* y): exchanges x[i] and y[i]; the two do not overlap.
template <class T>
struct Exchange;
/// (Strides at, T* y, const T* x): y, of the given extents, from x at the given strides, of which one is 1.
template <class T>
struct CopyStrided;
struct Strides {
  int dimensions = 0;
  Size extents[8] = {}, strides[8] = {};
};
/// The dimensions of x that a sum keeps and those that it sums, each innermost first, with their strides in x.
struct SumExtents {
  int kept = 0, summed = 0;
  Size kept_extents[8] = {}, kept_strides[8] = {}, summed_extents[8] = {}, summed_strides[8] = {};
};
/// (SumExtents at, double divisor, T* y, const T* x): y, dense, of the kept dimensions: the sum over the others, in
/// Compute<T> and in an order that depends on the extents alone, divided and rounded once.
template <class T>
struct SumAlong;
/// (Size outer, Size n, Size inner, T* y, int32* place, const T* x): y[i, j] = the largest x[i, k, j] and its first k;
/// NaN is larger than any number.
template <class T>
struct MaxAlong;
/// (Size outer, Size n, Size inner, T* dx, const T* dy, const int32* place): dx[i, place[i, j], j] = dy[i, j], else 0.
template <class T>
struct MaxAlongVjp;
/// (Size rows, Size n, T* y, const M* mask, const T* a, double a_number, const T* b, double b_number): y[i, j] =
/// mask[i] ? a[i, j] : b[i, j], the number where a or b is null. y may be a or b.
template <class T, class M>
struct Select;
/// (Size outer, Size rows, Size count, Size n, T* y, const T* x, const int32* ids): y[i, k, :] = x[i, ids[i, k], :].
template <class T>
struct Gather;
/// (Size outer, Size rows, Size count, Size n, T* dx, const T* dy, const int32* ids, int32* starts, int32* order): the
/// sum of dy's rows for each row of x, in order of position. `starts` has rows + 1 elements and `order` count.
template <class T>
struct GatherVjp;
/// (Size rows, Size n, Size times, T* y, const T* x): y[i, :] = sum over k < times of x[i times + k, :], in order.
template <class T>
struct SumRepeats;
/// (Size count, const T* x, double divisor, Compute<T>* total): the sum, in an order that depends on count alone,
/// divided in f64.
template <class T>
struct Sum;
/// (Size count, const T* x, U* total): the sum of squares, in f64 and in an order that depends on count alone.
template <class T, class U>
struct SquaredNorm;
/// (Size count, const T* x) -> bool: whether no element is NaN or infinite.
template <class T>
struct AllFinite;
/// (Size count, const Compute<T>* value, double divisor, T* y): y[i] = *value / divisor.
template <class T>
struct Broadcast;
/// (std::uint64_t start, Size bytes, const std::byte* x) -> std::uint64_t: the digest of both (base/digest.hpp).
struct DigestOf;
/// (Size bytes, const std::byte* x, std::uint64_t* digest): *digest = DigestOf(*digest, bytes, x).
struct ContinueDigest;
/// (Size bytes, const std::byte* x, std::uint64_t* digest): *digest = the PlacedDigest of all bytes.
struct PlacedDigestOf;
/// (Size bytes, const std::byte* x, const std::uint64_t* digest, std::uint64_t* changed): *changed = 1 unless *digest
/// is the PlacedDigest of all bytes.
struct ComparePlacedDigest;
/// (Size words, Size stride, const std::uint64_t* word, Size count, double* y): y[i] = NaN unless all word[k stride]
/// are 0.
struct NanIfAny;
/// (Size bytes, Size by, std::byte* x): moves the last `by` bytes to the front, the others after them.
struct Rotate;
/// (QuantizedParts parts, Size rows, Size columns, const T* x, std::byte* to, T* error, double keep): part (c, r) of
/// `to` is part (r, c) of x, which is [rows, columns, parts.count], quantized with scales of Compute<T>. If `error` is
/// not null, of x + error, of which what is lost comes to error = keep error + (1 - keep) lost; 0 in blocks of NaN.
template <class T>
struct Quantize;
/// (QuantizedParts parts, Size senders, Size rows, const std::byte* from, T* y): y, [rows, parts.count], is the sum of
/// the senders' parts, `from` of which is [senders, rows], in their order and in Compute<T>.
template <class T>
struct SumQuantized;

// ---- parameters -----------------------------------------------------------------------------------------------------

/// (const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step): ranges(f) calls
/// f(FlatRange<T, G, S>, RangeSettings) for each range, whose master (or parameter) and moments are updated by the
/// rule<S> of its optimizer_of() and scalars_of(); the parameter is rounded from the master. The bits do not depend on
/// how a shard is cut into ranges. `step` holds StepScalars, or is null: their gradient_scale replaces that of
/// `scalars`, and nothing is updated under another verdict than StepVerdict::update.
template <class O, class T, class G, class S>
struct Update;
/// (const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step): ranges(f) calls
/// f(FlatRange<T, G, S>, RangeSettings, double* sums) for each range: sums[0] += the squares of its parameters and
/// sums[1] += those of their updates, as optimizer.direction<S> gives them, in an order that does not depend on
/// threads. Updates nothing.
template <class O, class T, class G, class S>
struct AddUpdateSquares;
/// As Update, with f(FlatRange<T, G, S>, RangeSettings, const double* sums): a parameter becomes itself minus
/// lr optimizer.ratio(root of sums[0], root of sums[1]) times the update that optimizer.direction<S> gives.
template <class O, class T, class G, class S>
struct UpdateByNorms;
/// As Update, with f(FlatRange<T, G, S>, RangeSettings, S* to): `to` becomes what optimizer.matrix_direction<S> gives
/// in place of new values, and moments are updated.
template <class O, class T, class G, class S>
struct MatrixDirections;
/// As Update, with f(FlatRange<T, S, S>, RangeSettings, MatrixShape): values become those of optimizer.matrix_rule<S>,
/// whose gradients are the updates, unscaled.
template <class O, class T, class S>
struct UpdateMatrices;
/// (Size count, double epsilon, T* y, const T* x): y = x / max(|x|, epsilon), the 2-norm as SquaredNorm has it. y may
/// be x.
template <class T>
struct Normalize;
/// (const Ranges& ranges): ranges(f) calls f(Size count, Size stride, const double* parts, double* sums) for each sum:
/// sums[k] += the sum over i of parts[stride i + k], in order, for k = 0 and 1.
struct AddPairs;
/// (const Ranges& ranges): ranges(f) calls f(Size count, const T* x, double* sum) for each range: *sum += the sum of
/// squares as SquaredNorm has it, range after range.
template <class T>
struct AddSquares;
/// (const Ranges& ranges): ranges(f) calls f(Size count, Size columns, Size first, const T* x, double* sums) for each
/// range, elements [first, first + count) of a matrix of that many columns: the sum of squares of the k-th row of which
/// it has elements is added to sums[k].
template <class T>
struct AddRowSquares;
/// (Size pairs, const double* x, double* sum): sum[k] = the sum over i of x[2 i + k], in order.
struct SumPairs;
/// (int ranks, double* squares): squares[0] = the root of squares[1] plus all squares[2 r], or of a squares[2 r + 1]
/// that is not finite.
struct NormOfPairs;
/// (StepLimits, const double* norm, double* scalars): norm, scale and verdict of a gradient of that norm, before
/// unscaling, with the StepScalars of the step's targets.
struct JudgeStep;

// ---- counted targets ------------------------------------------------------------------------------------------------

/// (Size count, const int32* targets, const float* weights, double* counts): the sum of the weights of targets that are
/// not ignored, and the number of those that are not 0, to `counted` and `nonzero` of TargetCounts.
struct SumTargetWeights;
/// (const double* reported, const double* other): an error, now or when the host next synchronizes, unless they are
/// equal.
struct RequireSameCounts;
/// (const double* reported, const double* sum): the same unless the first is the second, but for rounding in f32.
struct RequireSumOfWeights;
/// (double all, const double* counted, const double* nonzero, const C* loss, double* counts): the TargetCounts of a
/// micro-batch of that mean loss. Where counted and nonzero are null, all targets count; they may be places of counts.
template <class C>
struct CountTargets;
/// (const C* value, double* number): the value as a double.
template <class C>
struct Widen;
/// (const double* counts, const double* number, double* sum): sum += number * `counted` of the TargetCounts.
struct AddCounted;
/// (SeedArguments, const double* counts, const C* loss, double* sums, C* seed): adds a micro-batch to the StepSums, and
/// gives its seed; see StepTargets.
template <class C>
struct SeedLoss;
struct SeedArguments {
  int replicas = 1;
  Size micro_step = 1;                   ///< of this step, counted from 1
  double scale = 1;                      ///< loss scale / (replicas x micro-steps)
  bool plain_mean = false;               ///< the loss has a mean over elements: an error if the counted share differs
  const StepNumbers* numbers = nullptr;  ///< where micro_step and scale are; null: they are these
};
/// (int replicas, Size micro_steps, const double* sums, const double* totals, double* scalars): the StepScalars of a
/// step's targets. totals: {loss * counted, counted} over all replicas.
struct SumUpTargets;

// ---- rows -----------------------------------------------------------------------------------------------------------

/// (Size rows, Size n, T* y, const T* x, const T* bias): y[i, j] = x[i, j] + bias[j]. y may be x.
template <class T>
struct AddBias;
/// (Size rows, Size n, G* into, Write write, const T* x): into[j] (+)= sum over i of x[i, j].
template <class T, class G>
struct SumRows;
/// (Size rows, Size n, const T* x, const T* residual, const T* gamma, const T* beta, double epsilon, T* sum, T* y,
/// Compute<T>* mean, Compute<T>* rstd): of x, or of sum = x + residual, which is written and rounded first; both null
/// without. sum may be x or residual. Moves 2 sizeof(T) bytes an element, and 4 with residual.
template <class T>
struct LayerNorm;
/// (Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma, const Compute<T>* mean,
/// const Compute<T>* rstd, Compute<T>* scratch, G* dgamma, Write, G* dbeta, Write): dx + earlier, rounded once; earlier
/// is the gradient that x has already, or null. dx may be dy or earlier. Moves 3 sizeof(T) bytes an element, and 4
/// with earlier.
template <class T, class G>
struct LayerNormVjp;
/// (Size rows, Size n, const T* x, const T* residual, const T* gamma, double epsilon, T* sum, T* y, Compute<T>*
/// inverse_root): as LayerNorm.
template <class T>
struct RmsNorm;
/// (Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma, const Compute<T>*
/// inverse_root, Compute<T>* scratch, G* dgamma, Write): as LayerNormVjp.
template <class T, class G>
struct RmsNormVjp;
/// (Size rows, Size n, T* y, const T* x)
template <class T>
struct Softmax;
/// (Size rows, Size n, T* dx, const T* dy, const T* y). dx may be dy.
template <class T>
struct SoftmaxVjp;
/// (Size rows, Size n, T* y, const T* x): x [rows, 2 n], y[i] = silu(x[i, first n]) x[i, last n].
template <class T>
struct Swiglu;
/// (Size rows, Size n, T* dx, const T* x, const T* dy)
template <class T>
struct SwigluVjp;

/// The extents of a rotation: rows [batch, sequence] of `columns` elements, of which the first `rotated` are heads.
struct RotaryExtents {
  Size rows = 0, sequence = 0, columns = 0, rotated = 0, head_dim = 0;
};
/// (Size first, Size count, Size head_dim, double theta, RopeScaling, C* table): cosines and sines of positions from
/// `first` on.
template <class C>
struct RotaryTable;
/// (RotaryExtents, T* y, const T* x, const Compute<T>* table, double sign): sign -1 rotates back. y may be x.
template <class T>
struct Rotary;

/// A window [samples, extents...] of a global tensor [..., global...], `dimensions` of them beside the samples, which
/// begins at `origin`; the bits that an element needs to be kept, and the factor of those that are.
struct DropoutArguments {
  PhiloxStream stream{};
  Size samples = 0;
  int dimensions = 0;
  Size extents[8] = {}, global[8] = {}, origin[8] = {};
  std::uint32_t threshold = 0;
  double factor = 1;
  const StepNumbers* numbers = nullptr;  ///< what is added to the stream's step and sample; null: nothing

  DSPP_HOST_DEVICE constexpr PhiloxStream stream_of_step() const {
    PhiloxStream of_step = stream;
    if (numbers != nullptr) of_step.step += numbers->random_step, of_step.sample += numbers->first_sample;
    return of_step;
  }
};
/// (DropoutArguments, T* y, const T* x). y may be x.
template <class T>
struct Dropout;
/// (PhiloxStream, Size first, Size count, double deviation, T* y): y[i] = deviation times the standard normal of
/// element first + i, multiplied in Compute<T>.
template <class T>
struct Normals;

// ---- tables and losses ----------------------------------------------------------------------------------------------

/// (Size count, const int32* ids, Size vocabulary, bool ignored, const char* who): an error, now or when the host next
/// synchronizes, with the first id outside [0, vocabulary). With `ignored` they are targets, which may be
/// ignored_target.
struct RequireIds;
/// (Size count, const float* weights, const char* who): the same for a weight that is negative or not finite.
struct RequireWeights;
/// (Size count, const int32* lengths, Size sequence, const char* who): the same for a length outside [0, sequence].
struct RequireLengths;
/// (Size count, Size rows, Size n, T* y, const T* table, const int32* ids, Size first_row): y[i, :] = table[ids[i] -
/// first_row, :], or zeros where the table has no such row.
template <class T>
struct Embedding;
/// (Size count, Size rows, Size n, G* into, Write, const T* dy, const int32* ids, Size first_row, int32* starts, int32*
/// order): the sum of dy's rows for each row of the table, in order of position. `starts` has rows + 1 elements and
/// `order` count.
template <class T, class G>
struct EmbeddingVjp;
/// (Size rows, Size columns, const T* logits, const int32* targets, Size first_column, Size valid_columns, Compute<T>*
/// parts, TargetProbabilities): see ops::cross_entropy_parts.
template <class T>
struct CrossEntropyParts;
/// (Size ranks, Size rows, const C* parts, const int32* targets, const float* weights, C* log_sum_exp, C* loss, double*
/// counted); targets and weights may be null.
template <class C>
struct CrossEntropyCombine;
/// (Size rows, Size columns, T* logits, const int32* targets, const float* weights, Size valid_columns, Compute<T> dy,
/// Compute<T>* parts, Compute<T>* log_sum_exp, Compute<T>* loss, double* counted, TargetProbabilities): the two above,
/// of all columns; and if *counted is `rows`, the gradient for dy replaces the logits. parts: [rows, 3]; weights may be
/// null. Moves 2 sizeof(T) bytes a logit.
template <class T>
struct CrossEntropyInPlace;
/// (Size rows, Size columns, T* logits, const int32* targets, const float* weights, const Compute<T>* log_sum_exp, Size
/// valid_columns, Compute<T> given, const Compute<T>* dy, const double* counted, TargetProbabilities): the gradient for
/// *dy where CrossEntropyInPlace had dy `given`. Moves nothing if *counted is `rows` and *dy is `given`, else 2
/// sizeof(T) bytes a logit.
template <class T>
struct CrossEntropyFinish;
/// (Size rows, Size columns, T* dlogits, const T* logits, const int32* targets, const float* weights, const Compute<T>*
/// log_sum_exp, Size first_column, Size valid_columns, const Compute<T>* dy, const double* counted,
/// TargetProbabilities): the gradient of the mean over what is counted, times *dy. weights may be null, dlogits may be
/// logits.
template <class T>
struct CrossEntropyVjp;

/// Bytes of a device that a kernel may write while it runs; those of Cuda begin at multiples of 256.
struct Workspace {
  std::uint8_t* data = nullptr;
  Size bytes = 0;
};

// ---- products -------------------------------------------------------------------------------------------------------

/// c[m, n] = op(a)[m, k] op(b)[k, n], each row-major with the given distance between rows.
struct Product {
  Size m = 0, n = 0, k = 0;
  Transpose ta = Transpose::no, tb = Transpose::no;
  Size lda = 0, ldb = 0, ldc = 0;

  /// Offsets of row i of op(a), column j of op(b) and element (i, j) of c.
  constexpr Size a_offset(Size i, Size p = 0) const { return ta == Transpose::no ? i * lda + p : p * lda + i; }
  constexpr Size b_offset(Size j, Size p = 0) const { return tb == Transpose::no ? p * ldb + j : j * ldb + p; }
  constexpr Size c_offset(Size i, Size j) const { return i * ldc + j; }

  /// The same layout, another extent.
  constexpr Product sized(Size rows, Size columns, Size depth) const {
    return {rows, columns, depth, ta, tb, lda, ldb, ldc};
  }
};

/// The epilogue of a product: c = values (+ bias on every row) or c += values, and optionally activated = gelu(c); or
/// c = values gelu'(before), of values as they are rounded. R is the type of c: T, or the type that T is computed in.
template <class R>
struct Finish {
  R* c = nullptr;
  Write write = Write::overwrite;
  const R* bias = nullptr;    ///< [n], with overwrite
  R* activated = nullptr;     ///< [m, n] with c's row distance, with overwrite
  const R* before = nullptr;  ///< [m, n] with c's row distance, with overwrite and nothing else; c may not be it
  GeluForm form = GeluForm::exact;
};

/// (Product, const T* a, const T* b, Finish<R>)
template <class T, class R>
struct Matmul;
/// (Size batch, Product, const T* a, const T* b, T* c): operands one after another.
template <class T>
struct BatchedMatmul;

/// Heads of attention: query heads, in groups that share one head of keys and values. The fused qkv is [batch,
/// sequence, 3, heads * head_dim]; else q is [batch, sequence, heads * head_dim] and kv [batch, keys, 2, kv_heads *
/// head_dim].
struct AttentionExtents {
  Size batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  AttentionRule rule{};
  Size other_keys = 0;  ///< keys of a sample if they are of another sequence, under a full mask; else 0
  AttentionKernels by = AttentionKernels::fastest;

  DSPP_HOST_DEVICE constexpr Size keys() const { return other_keys > 0 ? other_keys : sequence; }

  DSPP_HOST_DEVICE constexpr Size width() const { return heads * head_dim; }
  /// Query heads of one head of keys and values.
  DSPP_HOST_DEVICE constexpr Size group() const { return heads / kv_heads; }
  /// Columns of one token's keys, or values.
  DSPP_HOST_DEVICE constexpr Size kv_width() const { return kv_heads * head_dim; }
  /// Operations of one product of all heads, over the keys that the rule leaves.
  constexpr double flops() const {
    const Size near = rule.window > 0 && rule.window < sequence ? rule.window : sequence;
    const auto n = static_cast<double>(sequence), m = static_cast<double>(near);
    if (other_keys > 0) return static_cast<double>(batch * width()) * 2 * n * static_cast<double>(other_keys);
    const double twice_pairs =
        rule.mask == AttentionMask::full ? 2 * n + 2 * (m - 1) * (2 * n - m) : m * (2 * n - m + 1);
    return static_cast<double>(batch * width()) * twice_pairs;
  }
};

/// What attention takes from data, each null if there is none.
template <class T>
struct AttentionExtras {
  /// [batch, sequence, 2]: query i attends to no keys but [first, end), neither of which falls from i to i + 1.
  const std::int32_t* ranges = nullptr;
  const T* bias = nullptr;  ///< [heads, sequence, keys], added to the scores of every sample
};

/// (Size batch, Size sequence, Size keys, const int32* lengths, const int32* documents, int32* ranges): the ranges of
/// AttentionExtras, of lengths [batch] and of documents [batch, sequence], whose adjacent equal ids are one; either may
/// be null, documents must be where keys are not as many as the sequence.
struct KeyRanges;

/// (AttentionExtents, AttentionExtras<T>, const T* qkv, T* y, Compute<T>* log_sum_exp): of a query without keys y is 0
/// and log_sum_exp infinity.
template <class T>
struct Attention;
/// (AttentionExtents, AttentionExtras<T>, const T* qkv, const T* y, const Compute<T>* log_sum_exp, const T* dy,
/// T* dqkv, Compute<T>* dq_sum, Compute<T>* dbias): dq_sum is [batch, heads, sequence, head_dim] where T is narrower
/// than Compute<T>, else null; of a device with `dq_sum_columns` it has those instead of head_dim. dbias, like the
/// bias, is null or grows by its gradient, sample after sample.
template <class T>
struct AttentionVjp;
/// (AttentionExtents, AttentionExtras<T>, const T* q, const T* kv, T* y, Compute<T>* log_sum_exp)
template <class T>
struct GroupedAttention;
/// (AttentionExtents, AttentionExtras<T>, const T* q, const T* kv, const T* y, const Compute<T>* log_sum_exp, const T*
/// dy, T* dq, T* dkv, Compute<T>* dq_sum, Compute<T>* dbias)
template <class T>
struct GroupedAttentionVjp;

}  // namespace kernels
}  // namespace dspp
