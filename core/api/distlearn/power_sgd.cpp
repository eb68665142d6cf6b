// PowerSgd: PowerSGD with error feedback and warm start: each step is a power iteration on the average of all matrices.

#include <utility>

#include "api/distlearn/compressor.hpp"
#include "api/distlearn/low_rank.hpp"
#include "base/mix.hpp"
#include "shard/spec.hpp"

namespace mv::distlearn {
namespace {

class PowerSgd final : public Compressor {
 public:
  PowerSgd(api::Node& node, api::GroupRef group, uint64_t rank) : Compressor(node, std::move(group)), rank_(rank) {}
  ~PowerSgd() override { peers_.withdraw(); }  // before the lent memory is freed

  std::vector<float> residual() const override {
    std::vector<float> all;
    for (const Matrix& matrix : matrices_) all.insert(all.end(), matrix.residual.begin(), matrix.residual.end());
    return all;
  }

 private:
  /// One array. If two factors would be no shorter, it is sent whole, in `p`, and leaves no residual.
  struct Matrix {
    size_t rows = 0, cols = 0, rank = 0;
    bool is_whole() const { return rank == 0; }
    std::vector<float> p, q, residual;
    std::vector<float> value;  ///< gradient plus residual
  };

  base::Status begin(const Gradients& gradients) override {
    for (size_t i = 0; i < gradients.arrays.size(); ++i) {
      Matrix matrix;
      const uint64_t count = gradients.arrays[i].count;
      matrix.rows = std::max<uint64_t>(1, gradients.rows[i]);
      matrix.cols = count / matrix.rows;
      matrix.residual.assign(count, 0);
      matrix.value.assign(count, 0);
      const uint64_t rank = std::min<uint64_t>({rank_, matrix.rows, matrix.cols});
      if (matrix.rows > 1 && rank * (matrix.rows + matrix.cols) < count) matrix.rank = rank;
      matrix.p.assign(matrix.is_whole() ? count : matrix.rows * matrix.rank, 0);
      matrix.q.assign(matrix.cols * matrix.rank, 0);
      for (size_t k = 0; k < matrix.q.size(); ++k) matrix.q[k] = random(i, k);
      matrices_.push_back(std::move(matrix));
    }
    return {};
  }

  /// In -1 .. 1, the same on all ranks.
  static float random(uint64_t array, uint64_t at) {
    return static_cast<float>(static_cast<int64_t>(base::mix(base::mix(array + 1) + at)) * 0x1p-63);
  }

  base::Status reduce(const Gradients& gradients, base::Nanos timeout) override {
    const auto project = [&] {
      for (size_t i = 0; i < matrices_.size(); ++i) project_one(gradients.arrays[i], matrices_[i]);
      return base::Status();
    };
    const auto span = [&] {
      contributors_ = peers_.contributors();
      for (Matrix& matrix : matrices_) {
        if (matrix.is_whole()) continue;
        orthonormalize(matrix.p.data(), matrix.rows, matrix.rank);
        multiply_transposed(matrix.value.data(), matrix.p.data(), matrix.q.data(), matrix.rows, matrix.cols, matrix.rank);
        keep_rest(matrix);
      }
      return base::Status();
    };
    const auto take = [&] {
      for (size_t i = 0; i < matrices_.size(); ++i) take_one(gradients.arrays[i], matrices_[i]);
      return base::Status();
    };
    return peers_.carry_out("mv_compressed_average",
                            {project, [&] { return peers_.allreduce(firsts(), math::Reduction::kAverage); }, span,
                             [&] { return exchange_seconds(); }, take},
                            timeout);
  }

  base::Status exchange_seconds() {
    const Arrays arrays = seconds();
    return arrays.empty() ? base::Status() : peers_.allreduce(arrays, math::Reduction::kAverage);
  }

  static void project_one(const Array& gradient, Matrix& matrix) {
    size_t at = 0;
    for_each_element({gradient}, [&](auto& value) {
      matrix.value[at] = static_cast<float>(value) + matrix.residual[at];
      ++at;
    });
    if (matrix.is_whole())
      matrix.p = matrix.value;
    else
      multiply(matrix.value.data(), matrix.q.data(), matrix.p.data(), matrix.rows, matrix.cols, matrix.rank);
  }

  /// Stores the residual: what this rank's factors leave out of its matrix.
  static void keep_rest(Matrix& matrix) {
    expand(matrix.p.data(), matrix.q.data(), matrix.residual.data(), matrix.rows, matrix.cols, matrix.rank);
    for (size_t k = 0; k < matrix.value.size(); ++k) matrix.residual[k] = matrix.value[k] - matrix.residual[k];
  }

  static void take_one(const Array& gradient, Matrix& matrix) {
    if (!matrix.is_whole()) expand(matrix.p.data(), matrix.q.data(), matrix.value.data(), matrix.rows, matrix.cols, matrix.rank);
    const std::vector<float>& average = matrix.is_whole() ? matrix.p : matrix.value;
    size_t at = 0;
    for_each_element({gradient}, [&]<typename T>(T& value) { value = static_cast<T>(average[at++]); });
    if (!matrix.is_whole()) revive(matrix);
  }

  /// Restarts directions that the last matrices lacked, because zeros would stay zeros for ever.
  static void revive(Matrix& matrix) {
    for (size_t k = 0; k < matrix.rank; ++k) {
      bool is_zero = true;
      for (size_t col = 0; col < matrix.cols && is_zero; ++col) is_zero = matrix.q[col * matrix.rank + k] == 0;
      for (size_t col = 0; is_zero && col < matrix.cols; ++col) matrix.q[col * matrix.rank + k] = random(k, col);
    }
  }

  Arrays firsts() {
    Arrays arrays;
    for (Matrix& matrix : matrices_) arrays.push_back({reinterpret_cast<std::byte*>(matrix.p.data()), matrix.p.size(), MV_F32});
    return arrays;
  }
  Arrays seconds() {
    Arrays arrays;
    for (Matrix& matrix : matrices_)
      if (!matrix.is_whole()) arrays.push_back({reinterpret_cast<std::byte*>(matrix.q.data()), matrix.q.size(), MV_F32});
    return arrays;
  }

  /// The second factors start the next step on all ranks, including draining ones.
  base::Status drain(base::Nanos timeout) override {
    const auto fill = [&](const collective::Shape& shape) -> Arrays {
      drains_ = Drains::kOther;
      if (shape.finished || shape.reduction != math::Reduction::kAverage) return {};
      drains_ = !awaits_seconds_ && check_alike(firsts(), shape.arrays).ok() ? Drains::kFirsts
                : awaits_seconds_ && check_alike(seconds(), shape.arrays).ok() ? Drains::kSeconds
                                                                               : Drains::kOther;
      if (drains_ == Drains::kOther) return {};
      Arrays arrays = drains_ == Drains::kFirsts ? firsts() : seconds();
      for_each_element(arrays, [](auto& value) { value = 0; });
      return arrays;
    };
    const auto take = [&](const Arrays&) {
      if (drains_ == Drains::kFirsts) awaits_seconds_ = !seconds().empty();
      if (drains_ != Drains::kSeconds) return;
      awaits_seconds_ = false;
      for (Matrix& matrix : matrices_)
        if (!matrix.is_whole()) revive(matrix);
    };
    return peers_.carry_out("mv_compressed_finish", {[&] { return peers_.drain(fill, take); }}, timeout);
  }

  enum class Drains { kFirsts, kSeconds, kOther };

  const uint64_t rank_;
  std::vector<Matrix> matrices_;
  Drains drains_ = Drains::kOther;
  bool awaits_seconds_ = false;
};

}  // namespace

std::unique_ptr<Compressor> make_power_sgd(api::Node& node, api::GroupRef group, uint64_t rank) {
  return std::make_unique<PowerSgd>(node, std::move(group), rank);
}

}  // namespace mv::distlearn
