// PowerSgd: PowerSGD with error feedback and warm start: each step is a power iteration on the average of all matrices.
//
// A gradient on a device is multiplied there, and only its factors, or a vector, are copied to the host and exchanged there. All ranks
// compute the average of the same factors by sums in order, so that it has the same bits on all.

#include <utility>

#include "api/group/stage.hpp"
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

  std::vector<float> residual() const override { return residuals_.floats(); }

 private:
  /// One array. If two factors would be no shorter, it is sent whole, in `p`, and leaves no residual.
  struct Matrix {
    size_t rows = 0, cols = 0, rank = 0;
    bool is_whole() const { return rank == 0; }
    std::vector<float> p, q;
  };

  base::Status begin(const Gradients& gradients) override {
    for (size_t i = 0; i < gradients.arrays.size(); ++i) {
      Matrix matrix;
      const uint64_t count = gradients.arrays[i].count;
      matrix.rows = std::max<uint64_t>(1, gradients.rows[i]);
      matrix.cols = count / matrix.rows;
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
    if (auto status = settle(gradients.arrays); !status.ok()) return status;
    const auto project = [&] {
      return for_each_matrix([&](size_t i) { return project_one(i, gradients.arrays[i]); });
    };
    const auto span = [&] {
      contributors_ = peers_.contributors();
      return for_each_matrix([&](size_t i) { return matrices_[i].is_whole() ? base::Status() : span_one(i); });
    };
    const auto take = [&] {
      auto status = for_each_matrix([&](size_t i) { return take_one(i, gradients.arrays[i]); });
      return status.ok() ? wait_for(given_) : status;
    };
    return peers_.carry_out("mv_compressed_average",
                            {project, [&] { return peers_.allreduce(firsts(), math::Reduction::kAverage); }, span,
                             [&] { return exchange_seconds(); }, take},
                            timeout);
  }

  template <typename Work>
  base::Status for_each_matrix(const Work& work) {
    for (size_t i = 0; i < matrices_.size(); ++i)
      if (auto status = work(i); !status.ok()) return status;
    return {};
  }

  /// Everything follows the gradients to their devices, unless these can't multiply.
  base::Status settle(const Arrays& gradients) {
    auto given = peers_.places_of(gradients, given_);
    if (!given.ok()) return given.status();
    Places places = given.value();
    for (tensor::Device*& place : places)
      if (place != nullptr && !place->has_matmul()) place = nullptr;
    Arrays whole, p, q;
    for (const Matrix& matrix : matrices_) {
      whole.push_back({nullptr, matrix.rows * matrix.cols, MV_F32});
      p.push_back({nullptr, matrix.is_whole() ? 0 : matrix.p.size(), MV_F32});
      q.push_back({nullptr, matrix.q.size(), MV_F32});
    }
    for (const auto& [buffers, like] : {std::pair(&residuals_, &whole), std::pair(&values_, &whole), std::pair(&p_there_, &p), std::pair(&q_there_, &q)})
      if (auto status = buffers->settle(*like, places); !status.ok()) return status;
    given_ = std::move(given).value();
    return {};
  }

  base::Status exchange_seconds() {
    const Arrays arrays = seconds();
    return arrays.empty() ? base::Status() : peers_.allreduce(arrays, math::Reduction::kAverage);
  }

  // ---- one matrix, on its device or on the host

  tensor::Device* place_of(size_t i) const { return values_.places()[i]; }
  float* value(size_t i) const { return floats_of(values_, i); }
  float* residual(size_t i) const { return floats_of(residuals_, i); }
  static float* floats_of(const Buffers& buffers, size_t i) { return reinterpret_cast<float*>(buffers.arrays()[i].data); }
  size_t count(size_t i) const { return values_.arrays()[i].count; }

  /// Copies to the device what the host has of a factor, or the reverse.
  base::Status send(size_t i, const std::vector<float>& factor, const Buffers& there) const {
    return place_of(i)->from_host(floats_of(there, i), factor.data(), factor.size() * sizeof(float));
  }
  base::Status fetch(size_t i, std::vector<float>& factor, const Buffers& there) const {
    return place_of(i)->to_host(factor.data(), floats_of(there, i), factor.size() * sizeof(float));
  }
  tensor::Device::Factors factors(size_t i) const {
    const Matrix& matrix = matrices_[i];
    return {floats_of(p_there_, i), floats_of(q_there_, i), matrix.rows, matrix.cols, matrix.rank};
  }

  base::Status project_one(size_t i, const Array& gradient) {
    Matrix& matrix = matrices_[i];
    tensor::Device* const device = place_of(i);
    if (device != nullptr) {
      if (auto status = device->cast(MV_F32, value(i), gradient.dtype, gradient.data, gradient.count); !status.ok()) return status;
      if (auto status = device->add(MV_F32, value(i), residual(i), gradient.count); !status.ok()) return status;
      if (matrix.is_whole()) return fetch(i, matrix.p, values_);
      if (auto status = send(i, matrix.q, q_there_); !status.ok()) return status;
      const auto product = p_there_.matrix(i, matrix.rows, matrix.rank);
      auto status = device->matmul(values_.matrix(i, matrix.rows, matrix.cols), q_there_.matrix(i, matrix.cols, matrix.rank), 0, product);
      return status.ok() ? fetch(i, matrix.p, p_there_) : status;
    }
    Arrays here = {gradient};
    const auto staging = api::stage_arrays(here, peers_.find_device());
    if (!staging.ok()) return staging.status();
    read_here(i, here);
    return {};
  }

  void read_here(size_t i, const Arrays& gradient) {
    Matrix& matrix = matrices_[i];
    size_t at = 0;
    for_each_element(gradient, [&](auto& element) {
      value(i)[at] = static_cast<float>(element) + residual(i)[at];
      ++at;
    });
    if (matrix.is_whole())
      std::copy_n(value(i), count(i), matrix.p.begin());
    else
      multiply(value(i), matrix.q.data(), matrix.p.data(), matrix.rows, matrix.cols, matrix.rank);
  }

  /// The second factor, and the residual: what this rank's factors leave out of its matrix.
  base::Status span_one(size_t i) {
    Matrix& matrix = matrices_[i];
    orthonormalize(matrix.p.data(), matrix.rows, matrix.rank);
    if (tensor::Device* const device = place_of(i); device != nullptr) {
      if (auto status = send(i, matrix.p, p_there_); !status.ok()) return status;
      const auto m = values_.matrix(i, matrix.rows, matrix.cols), p = p_there_.matrix(i, matrix.rows, matrix.rank);
      if (auto status = device->matmul(m, p, MV_TRANSPOSE_A, q_there_.matrix(i, matrix.cols, matrix.rank)); !status.ok()) return status;
      if (auto status = device->expand(factors(i), value(i), MV_F32, residual(i)); !status.ok()) return status;
      return fetch(i, matrix.q, q_there_);
    }
    multiply_transposed(value(i), matrix.p.data(), matrix.q.data(), matrix.rows, matrix.cols, matrix.rank);
    expand(matrix.p.data(), matrix.q.data(), residual(i), matrix.rows, matrix.cols, matrix.rank);
    for (size_t k = 0; k < count(i); ++k) residual(i)[k] = value(i)[k] - residual(i)[k];
    return {};
  }

  base::Status take_one(size_t i, const Array& gradient) {
    Matrix& matrix = matrices_[i];
    base::Status status = place_of(i) != nullptr ? take_there(i, gradient) : take_here(i, gradient);
    if (status.ok() && !matrix.is_whole()) revive(matrix);
    return status;
  }
  base::Status take_there(size_t i, const Array& gradient) {
    const Matrix& matrix = matrices_[i];
    tensor::Device& device = *place_of(i);
    if (matrix.is_whole()) {
      if (auto status = send(i, matrix.p, values_); !status.ok()) return status;
      return device.cast(gradient.dtype, gradient.data, MV_F32, value(i), gradient.count);
    }
    if (auto status = send(i, matrix.q, q_there_); !status.ok()) return status;
    return device.expand(factors(i), nullptr, gradient.dtype, gradient.data);
  }
  base::Status take_here(size_t i, const Array& gradient) {
    const Matrix& matrix = matrices_[i];
    if (!matrix.is_whole()) expand(matrix.p.data(), matrix.q.data(), value(i), matrix.rows, matrix.cols, matrix.rank);
    const float* const average = matrix.is_whole() ? matrix.p.data() : value(i);
    Arrays here = {gradient};
    const auto staging = api::stage_arrays(here, peers_.find_device());
    if (!staging.ok()) return staging.status();
    size_t at = 0;
    for_each_element(here, [&]<typename T>(T& element) { element = static_cast<T>(average[at++]); });
    return staging.value() != nullptr ? staging.value()->finish() : base::Status();
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
      if (drains_ != Drains::kSeconds) return base::Status();
      awaits_seconds_ = false;
      for (Matrix& matrix : matrices_)
        if (!matrix.is_whole()) revive(matrix);
      return base::Status();
    };
    return peers_.carry_out("mv_compressed_finish", {[&] { return peers_.drain(fill, take); }}, timeout);
  }

  enum class Drains { kFirsts, kSeconds, kOther };

  const uint64_t rank_;
  std::vector<Matrix> matrices_;
  Places given_;              ///< of the gradients
  Buffers residuals_, values_;  ///< of each matrix, in its place; a value is a gradient plus its residual
  Buffers p_there_, q_there_;   ///< copies of the factors of those on devices
  Drains drains_ = Drains::kOther;
  bool awaits_seconds_ = false;
};

}  // namespace

std::unique_ptr<Compressor> make_power_sgd(api::Node& node, api::GroupRef group, uint64_t rank) {
  return std::make_unique<PowerSgd>(node, std::move(group), rank);
}

}  // namespace mv::distlearn
