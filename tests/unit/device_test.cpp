// core/device: every kernel against the library's results on the processor, bit for bit, and every failure of a plug-in. The plug-in is the
// emulation in device/emulation.cpp, or the one that POLYVERSO_DEVICE_PLUGIN names, such as CUDA's: `make test-cuda`.

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "codec/values.hpp"
#include "device/operations.hpp"
#include "math/average.hpp"
#include "math/elements.hpp"
#include "math/kernels.hpp"
#include "math/outer_step.hpp"
#include "math/reduction.hpp"
#include "shard/updater/apply.hpp"
#include "tensor/cast.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/matmul.hpp"
#include "tensor/random.hpp"
#include "tensor/reduce.hpp"
#include "tensor/sparse.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "must.hpp"

namespace {

using namespace mv;
using device::Memory;
using tensor::Tensor;

constexpr mv_dtype kAll[] = {MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_F16, MV_BF16, MV_I8};
constexpr mv_dtype kFloats[] = {MV_F32, MV_F64, MV_F16, MV_BF16};

bool is_emulated() { return std::getenv(device::kPluginVariable) == nullptr; }
std::string plugin_file() { return is_emulated() ? EMULATION : std::getenv(device::kPluginVariable); }

const device::Stream& stream() {
  static const device::Stream kStream = must(device::Stream::make(must(device::Device::open(must(device::load_plugin(plugin_file())), 0))));
  return kStream;
}
tensor::Heap& heap() {
  static tensor::Heap kHeap;
  return kHeap;
}

Tensor make(mv_dtype dtype, std::vector<int64_t> shape) {
  return must(tensor::make_dense(heap(), dtype, must(tensor::make_shape("test", shape.data(), shape.size())), tensor::Heap::Content::kZeros));
}
Memory to_device(const Tensor& from) { return must(Memory::of(stream(), from.data, from.stored_bytes())); }
std::vector<std::byte> from_device(const Memory& memory) {
  std::vector<std::byte> bytes(memory.bytes());
  must(stream().copy(bytes.data(), memory.as(), bytes.size()));
  must(stream().wait());
  return bytes;
}

/// The same bits, except for the payloads of NaNs.
void assert_same(mv_dtype dtype, const std::byte* mine, const std::byte* theirs, size_t count, const std::string& what) {
  const size_t size = tensor::dtype_bytes(dtype);
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(mine + i * size, theirs + i * size, size) == 0) continue;
    const double a = tensor::load_element(dtype, mine + i * size), b = tensor::load_element(dtype, theirs + i * size);
    if (std::isnan(a) && std::isnan(b)) continue;
    fail_msg("%s: element %zu of %zu is %.17g on the device, %.17g on the processor", what.c_str(), i, count, a, b);
  }
}
void assert_same(const Memory& mine, const Tensor& theirs, const std::string& what) {
  assert_int_equal(mine.bytes(), theirs.stored_bytes());
  assert_same(theirs.dtype, from_device(mine).data(), theirs.data, theirs.stored(), what);
}
std::string text(const char* what, int64_t number, mv_dtype dtype) {
  return std::string(what) + " " + std::to_string(number) + " of " + std::string(tensor::dtype_name(dtype));
}

/// Numbers of many magnitudes, with zeros of both signs, infinities and NaNs; integers of all sizes.
Tensor varied(mv_dtype dtype, size_t count, uint32_t seed, bool is_finite = false) {
  std::mt19937 random(seed);
  const Tensor made = make(dtype, {static_cast<int64_t>(count)});
  const int spread = dtype == MV_F16 ? 20 : 60;
  for (size_t i = 0; i < count; ++i) {
    double value = std::ldexp(static_cast<double>(static_cast<int32_t>(random())), -30 + static_cast<int>(random() % spread) - spread / 2);
    const uint32_t kind = random() % 64;
    if (kind < 2) value = kind == 0 ? 0.0 : -0.0;
    if (kind >= 2 && kind < 5 && !is_finite) value = kind == 2 ? HUGE_VAL : kind == 3 ? -HUGE_VAL : std::nan("");
    if (kind >= 5 && kind < 20) value = static_cast<double>(static_cast<int>(random() % 200) - 100);
    if (!tensor::is_floating(dtype)) value = std::ldexp(static_cast<double>(static_cast<int32_t>(random())), -static_cast<int>(random() % 31));
    tensor::store_element(dtype, made.data + i * tensor::dtype_bytes(dtype), value);
  }
  return made;
}

void casts_round_as_the_processor(void**) {
  for (const mv_dtype from : kAll) {
    Tensor values = varied(from, 20000, 1);
    if (math::is_half(from)) {  // all there are
      values = make(from, {65536});
      for (uint32_t bits = 0; bits < 65536; ++bits) reinterpret_cast<uint16_t*>(values.data)[bits] = static_cast<uint16_t>(bits);
    }
    const Memory in = to_device(values);
    for (const mv_dtype to : kAll) {
      const Tensor wanted = must(tensor::cast("test", heap(), values, to));
      const Memory out = must(Memory::make(stream(), wanted.stored_bytes()));
      must(stream().launch(MV_DEVICE_CAST, mv_device_cast{out.as(), in.as(), values.stored(), to, from}));
      assert_same(out, wanted, text("cast to", to, from));
    }
  }
}

void elements_are_computed_as_on_the_processor(void**) {
  for (const mv_dtype dtype : kAll) {
    constexpr size_t kCount = 10007;
    const Tensor a = varied(dtype, kCount, 2), b = varied(dtype, kCount, 3);
    const Memory left = to_device(a), right = to_device(b);
    const bool is_float = tensor::is_floating(dtype);
    for (int32_t op = MV_NEG; op <= (is_float ? MV_LOG : MV_ABS); ++op) {
      const Tensor wanted = must(tensor::unary("test", heap(), op, a, nullptr));
      const Memory out = must(Memory::make(stream(), wanted.stored_bytes()));
      must(stream().launch(MV_DEVICE_UNARY, mv_device_unary{out.as(), left.as(), kCount, op, dtype}));
      assert_same(out, wanted, text("unary", op, dtype));
    }
    for (int32_t op = MV_ADD; op <= MV_GE; ++op) {
      if (!is_float && (op == MV_DIV || op == MV_POW)) continue;
      if (op == MV_POW && !is_emulated()) continue;  // its own test
      const Tensor wanted = must(tensor::binary("test", heap(), op, a, b, nullptr)),
                   by_one = must(tensor::scalar("test", heap(), op, a, 3, false, nullptr));
      const Memory out = must(Memory::make(stream(), wanted.stored_bytes()));
      mv_device_binary work = {out.as(), {left.as(), {}, 0}, {right.as(), {}, 0}, kCount, op, dtype};
      must(stream().launch(MV_DEVICE_BINARY, work));
      assert_same(out, wanted, text("binary", op, dtype));
      work.b = {nullptr, {}, 1};
      tensor::store_element(dtype, reinterpret_cast<std::byte*>(work.b.value), 3);
      must(stream().launch(MV_DEVICE_BINARY, work));
      assert_same(out, by_one, text("binary with a number", op, dtype));
    }
  }
}

void powers_are_close_and_those_of_integers_exact(void**) {
  for (const mv_dtype dtype : kAll) {
    const Tensor base = make(dtype, {100}), exponent = make(dtype, {100});
    for (size_t i = 0; i < 100; ++i) {
      tensor::store_element(dtype, base.data + i * tensor::dtype_bytes(dtype), static_cast<double>(i % 13));
      tensor::store_element(dtype, exponent.data + i * tensor::dtype_bytes(dtype),
                            static_cast<double>(i % 7) + (tensor::is_floating(dtype) ? 0.25 : 0));
    }
    const Tensor wanted = must(tensor::binary("test", heap(), MV_POW, base, exponent, nullptr));
    const Memory a = to_device(base), b = to_device(exponent), out = must(Memory::make(stream(), wanted.stored_bytes()));
    must(stream().launch(MV_DEVICE_BINARY, mv_device_binary{out.as(), {a.as(), {}, 0}, {b.as(), {}, 0}, 100, MV_POW, dtype}));
    const auto bytes = from_device(out);
    const Tensor mine = must(tensor::make_copy_of("test", heap(), bytes.data(), 100, dtype, wanted.shape));
    assert_true(must(tensor::close("test", mine, wanted, dtype == MV_F64 ? 4e-16 : tensor::is_floating(dtype) ? 1e-2 : 0, 0)));
  }
}

void arrays_are_filled_and_arranged(void**) {
  for (const mv_dtype dtype : kAll) {
    const Tensor wanted = make(dtype, {5000});
    const Memory out = must(Memory::make(stream(), wanted.stored_bytes()));
    must(tensor::fill("test", wanted, 7));
    mv_device_fill fill = {out.as(), 5000, {}, dtype};
    tensor::store_element(dtype, reinterpret_cast<std::byte*>(fill.value), 7);
    must(stream().launch(MV_DEVICE_FILL, fill));
    assert_same(out, wanted, text("fill", 7, dtype));
    must(tensor::range("test", wanted, -3.5, 0.25));
    must(stream().launch(MV_DEVICE_RANGE, mv_device_range{out.as(), 5000, -3.5, 0.25, dtype}));
    assert_same(out, wanted, text("range", 0, dtype));
    // Transposed, and a row repeated.
    Tensor matrix = varied(dtype, 50 * 70, 4);
    matrix.shape = must(tensor::make_shape("test", std::vector<int64_t>{50, 70}.data(), 2));
    const Memory in = to_device(matrix), turned = must(Memory::make(stream(), matrix.stored_bytes()));
    const auto size = static_cast<uint32_t>(tensor::dtype_bytes(dtype));
    must(stream().launch(MV_DEVICE_ARRANGE, mv_device_arrange{turned.as(), in.as(), 3500, size, 2, {70, 50}, {1, 70}}));
    assert_same(turned, must(tensor::transpose("test", heap(), matrix)), text("transpose", 0, dtype));
    must(stream().launch(MV_DEVICE_ARRANGE, mv_device_arrange{turned.as(), in.as(), 3500, size, 2, {50, 70}, {0, 1}}));
    const Tensor repeated = make(dtype, {50, 70});
    must(tensor::copy("test", heap(), must(tensor::slice("test", matrix, 0, 1)), &repeated));
    assert_same(turned, repeated, text("broadcast", 0, dtype));
  }
}

void arrays_are_combined_in_place(void**) {
  constexpr size_t kCount = 9001;
  for (const mv_dtype dtype : kAll) {
    const bool is_float = tensor::is_floating(dtype);
    const Tensor x = varied(dtype, kCount, 5), y = varied(dtype, kCount, 6), z = varied(dtype, kCount, 7);
    const Memory mx = to_device(x), mz = to_device(z);
    for (const mv_dtype x_dtype : kAll) {  // those that need no other common dtype
      if (x_dtype != dtype &&
          !(is_float && !math::is_half(dtype) && tensor::is_floating(x_dtype) && tensor::dtype_bytes(x_dtype) <= tensor::dtype_bytes(dtype)))
        continue;
      const Tensor added = varied(x_dtype, kCount, 8), wanted = must(tensor::clone(heap(), y));
      const double alpha = is_float ? 0.37 : 3;
      must(tensor::axpy("test", heap(), alpha, added, wanted));
      const Memory my = to_device(y), m_added = to_device(added);
      must(stream().launch(MV_DEVICE_AXPY, mv_device_axpy{my.as(), m_added.as(), kCount, alpha, dtype, x_dtype}));
      assert_same(my, wanted, text("axpy", x_dtype, dtype));
    }
    for (int32_t op = MV_DEVICE_MERGE_SUM; op <= (is_float ? MV_DEVICE_MERGE_MEAN : MV_DEVICE_MERGE_MAX); ++op) {
      const Tensor wanted = make(dtype, {kCount});
      const std::byte* const sources[] = {y.data, x.data, z.data};
      math::merge_bytes(static_cast<math::Reduction>(op + 1), dtype, wanted.data, sources, kCount, 3);
      const Memory my = to_device(y);
      mv_device_merge work = {my.as(), {my.as(), mx.as(), mz.as()}, kCount, 3, 3, op, dtype};  // into the first source
      must(stream().launch(MV_DEVICE_MERGE, work));
      assert_same(my, wanted, text("merge", op, dtype));
    }
  }
}

void models_are_averaged_as_on_the_processor(void**) {
  constexpr size_t kCount = 9001, kTiles = 3;
  for (const mv_dtype dtype : kFloats)
    for (const bool is_finite : {true, false}) {
      const Tensor x = varied(dtype, kCount, 5, is_finite), y = varied(dtype, kCount, 6, is_finite), z = varied(dtype, kCount, 7, is_finite);
      const Memory mx = to_device(x), mz = to_device(z);
      for (const bool has_base : {false, true})
        for (const bool measures : {false, true}) {
          const Tensor wanted = must(tensor::clone(heap(), y));
          const double apart = has_base ? math::approach_bytes(dtype, wanted.data, x.data, z.data, kCount, 0.3)
                                        : math::average_bytes(dtype, wanted.data, x.data, kCount, 0.3);
          const Memory my = to_device(y), squares = must(Memory::make(stream(), 2 * kTiles * sizeof(double)));
          double* const sums = measures ? squares.as<double>() : nullptr;
          must(stream().launch(MV_DEVICE_MIX, mv_device_mix{my.as(), mx.as(), has_base ? mz.as() : nullptr, sums, kCount, 0.3, dtype}));
          assert_same(my, wanted, text("mix", has_base, dtype));
          if (!measures) continue;
          const auto bytes = from_device(squares);
          const auto* const pairs = reinterpret_cast<const double*>(bytes.data());
          const double sum = std::accumulate(pairs, pairs + 2 * kTiles, 0.0);
          assert_true(is_finite ? std::fabs(sum - apart) <= 1e-5 * apart : !std::isfinite(sum));
        }
    }
}

void steps_of_pairs_are_those_of_the_processor(void**) {
  constexpr size_t kCount = 9001, kTiles = 3;
  const math::OuterFactors factors{0.5, 0.7, 0.9};
  for (const mv_dtype dtype : {MV_F32, MV_F64})
    for (const bool is_alone : {false, true}) {
      std::vector<Tensor> here;
      std::vector<Memory> there;
      for (uint32_t i = 0; i < 7; ++i) there.push_back(to_device(here.emplace_back(varied(dtype, kCount, 40 + i, true))));
      const math::SlowModel own{here[3].data, here[4].data}, peer{here[5].data, here[6].data};
      const double apart = math::outer_step_bytes(dtype, here[0].data, here[1].data, here[2].data, own, is_alone ? own : peer, kCount, factors);
      const Memory squares = must(Memory::make(stream(), 2 * kTiles * sizeof(double)));
      const size_t other = is_alone ? 3 : 5;
      must(stream().launch(MV_DEVICE_PAIR_STEP,
                           mv_device_pair_step{there[0].as(), there[1].as(), there[2].as(), there[3].as(), there[4].as(), there[other].as(),
                                               there[other + 1].as(), squares.as<double>(), kCount, factors.alpha, factors.beta, factors.gamma, dtype}));
      for (size_t i = 0; i < 3; ++i) assert_same(there[i], here[i], text("a step of a pair, array", static_cast<int64_t>(i), dtype));
      const auto bytes = from_device(squares);
      const auto* const pairs = reinterpret_cast<const double*>(bytes.data());
      assert_true(std::fabs(std::accumulate(pairs, pairs + 2 * kTiles, 0.0) - apart) <= 1e-5 * apart);
    }
}

void elastic_steps_are_those_of_the_processor(void**) {
  constexpr size_t kCount = 9001;
  for (const mv_dtype dtype : kFloats) {
    const mv_dtype wide = tensor::storage_dtype(dtype);
    const Tensor values = varied(dtype, kCount, 5), center = varied(wide, kCount, 6), moved = make(dtype, {kCount}), difference = make(wide, {kCount});
    math::with_floating(dtype, [&]<typename T>(T) {
      using C = math::Computed<T>;
      for (size_t i = 0; i < kCount; ++i) {
        const auto value = static_cast<C>(tensor::load_element(dtype, values.data + i * sizeof(T)));
        const C apart = (value - reinterpret_cast<const C*>(center.data)[i]) * static_cast<C>(0.3);
        reinterpret_cast<C*>(difference.data)[i] = apart;
        tensor::store_element(dtype, moved.data + i * sizeof(T), static_cast<double>(value - apart));
      }
    });
    for (const bool is_one : {false, true}) {
      const Memory my = to_device(values), c = to_device(center), d = must(Memory::make(stream(), difference.stored_bytes()));
      must(stream().launch(MV_DEVICE_ELASTIC, mv_device_elastic{my.as(), c.as(), is_one ? c.as() : d.as(), kCount, 0.3, dtype}));
      assert_same(my, moved, text("elastic", is_one, dtype));
      assert_same(is_one ? c : d, difference, text("difference", is_one, dtype));
    }
  }
}

void factors_are_expanded_in_order(void**) {
  constexpr int64_t kRows = 50, kCols = 70, kRank = 3;
  const Tensor p = varied(MV_F32, kRows * kRank, 5, true), q = varied(MV_F32, kCols * kRank, 6, true), from = varied(MV_F32, kRows * kCols, 7, true);
  const Tensor product = make(MV_F32, {kRows * kCols});
  const auto at = [](const Tensor& of) { return reinterpret_cast<float*>(of.data); };
  for (int64_t i = 0; i < kRows * kCols; ++i)
    for (int64_t k = 0; k < kRank; ++k) at(product)[i] += at(p)[i / kCols * kRank + k] * at(q)[i % kCols * kRank + k];
  const Tensor rest = must(tensor::binary("test", heap(), MV_SUB, from, product, nullptr));
  const Memory mp = to_device(p), mq = to_device(q), m_from = to_device(from);
  for (const bool subtracts : {false, true})
    for (const mv_dtype dtype : kFloats) {
      const Tensor wanted = must(tensor::cast("test", heap(), subtracts ? rest : product, dtype));
      const Memory out = must(Memory::make(stream(), wanted.stored_bytes()));
      const float* const minuend = subtracts ? m_from.as<float>() : nullptr;
      must(stream().launch(MV_DEVICE_EXPAND, mv_device_expand{out.as(), mp.as<float>(), mq.as<float>(), minuend, kRows, kCols, kRank, dtype}));
      assert_same(out, wanted, text("expand", subtracts, dtype));
    }
}

void rows_are_taken_put_and_found(void**) {
  constexpr uint64_t kRows = 50, kWidth = 37, kWanted = 30;
  for (const mv_dtype dtype : kAll) {
    Tensor matrix = varied(dtype, kRows * kWidth, 4);
    matrix.shape = must(tensor::make_shape("test", std::vector<int64_t>{kRows, kWidth}.data(), 2));
    std::memset(matrix.data + 7 * kWidth * tensor::dtype_bytes(dtype), 0, kWidth * tensor::dtype_bytes(dtype));
    std::vector<uint64_t> from(kWanted), starts = {0, 1, 4, kWanted};
    std::vector<int64_t> ids(kWanted), repeated(kWanted);
    for (size_t i = 0; i < kWanted; ++i) ids[i] = static_cast<int64_t>(from[i] = i * 7 % kRows);
    for (size_t i = 0; i < kWanted; ++i) repeated[i] = i < 1 ? 0 : i < 4 ? 1 : 2;
    const Memory in = to_device(matrix), places = must(Memory::of(stream(), from.data(), kWanted * 8)), ends = must(Memory::of(stream(), starts.data(), 32));
    const Tensor taken = must(tensor::take("test", heap(), matrix, ids.data(), kWanted));
    const Memory out = must(Memory::make(stream(), taken.stored_bytes()));
    must(stream().launch(MV_DEVICE_TAKE, mv_device_take{out.as(), device::one_array(in.as()), places.as<uint64_t>(), nullptr, kWanted, kWidth, dtype}));
    assert_same(out, taken, text("take", 0, dtype));
    const auto sums = must(tensor::parts("test", must(tensor::make_sparse("test", heap(), repeated.data(), kWanted, taken, 3)))).values;
    const Memory summed = must(Memory::make(stream(), sums.stored_bytes()));
    if (tensor::storage_dtype(dtype) == dtype) {  // tensors of halves are summed in f32, and rounded after that
      must(stream().launch(MV_DEVICE_TAKE, mv_device_take{summed.as(), device::one_array(in.as()), places.as<uint64_t>(), ends.as<uint64_t>(), 3, kWidth, dtype}));
      assert_same(summed, sums, text("sums of rows", 0, dtype));
    }
    const Tensor filled = must(tensor::to_dense("test", heap(), must(tensor::make_sparse("test", heap(), ids.data(), kWanted, taken, kRows))));
    const Memory target = to_device(make(dtype, {kRows, kWidth}));
    must(stream().launch(MV_DEVICE_PUT, mv_device_put{device::one_array(target.as()), out.as(), places.as<uint64_t>(), kWanted, kWidth, dtype}));
    assert_same(target, filled, text("put", 0, dtype));
    const Memory used = must(Memory::make(stream(), kRows));
    must(stream().launch(MV_DEVICE_USED, mv_device_used{used.as<uint8_t>(), in.as(), kRows, kWidth, dtype}));
    const auto found = from_device(used);
    for (size_t row = 0; row < kRows; ++row) assert_int_equal(static_cast<int>(found[row]), row != 7);
  }
}

void random_numbers_are_those_of_the_processor(void**) {
  constexpr size_t kCount = 10001;
  for (const mv_dtype dtype : kAll) {
    const bool is_float = tensor::is_floating(dtype);
    const Tensor wanted = make(dtype, {kCount});
    const Memory out = must(Memory::make(stream(), wanted.stored_bytes()));
    const double low = dtype == MV_U8 ? 3 : -100, high = 101;
    must(tensor::fill_uniform("test", wanted, -4711, low, high));
    must(stream().launch(MV_DEVICE_RANDOM, mv_device_random{out.as(), kCount, -4711, low, high, static_cast<int64_t>(low),
                                                            static_cast<uint64_t>(high - low), 0, dtype}));
    assert_same(out, wanted, text("uniform", 0, dtype));
    if (!is_float) continue;
    must(tensor::fill_normal("test", wanted, 42, 1, 3));
    must(stream().launch(MV_DEVICE_RANDOM, mv_device_random{out.as(), kCount, 42, 1, 3, 0, 0, 1, dtype}));
    assert_same(out, wanted, text("normal", 0, dtype));
  }
}

void reductions_have_the_order_of_the_processor(void**) {
  const std::vector<std::vector<int64_t>> shapes = {
      {1}, {15}, {16}, {17}, {511}, {512}, {513}, {5000}, {512 * 512}, {512 * 513 + 77}, {7, 1300}, {1300, 7}, {5, 600, 3}, {3, 0}};
  for (const mv_dtype dtype : kAll) {
    for (const auto& shape : shapes) {
      int64_t count = 1;
      for (const int64_t length : shape) count *= length;
      for (const bool is_finite : {true, false}) {
        Tensor in = varied(dtype, static_cast<size_t>(count), 9, is_finite);
        in.shape = must(tensor::make_shape("test", shape.data(), shape.size()));
        const Memory values = to_device(in);
        for (int64_t axis = MV_ALL_AXES; axis < static_cast<int64_t>(shape.size()); ++axis) {
          device::Extent extent{1, static_cast<uint64_t>(count), 1};
          if (axis != MV_ALL_AXES) {
            extent.along = static_cast<uint64_t>(shape[static_cast<size_t>(axis)]);
            for (size_t d = 0; d < shape.size(); ++d) {
              if (static_cast<int64_t>(d) < axis) extent.outer *= static_cast<uint64_t>(shape[d]);
              if (static_cast<int64_t>(d) > axis) extent.inner *= static_cast<uint64_t>(shape[d]);
            }
          }
          for (int32_t op = MV_SUM; op <= MV_NORM; ++op) {
            const auto wanted = tensor::reduce("test", heap(), op, in, axis);
            const Memory out = must(Memory::make(stream(), wanted.ok() ? wanted.value().stored_bytes() : 8));
            const base::Status status = device::reduce(stream(), op, dtype, values.as(), extent, out.as());
            assert_int_equal(status.code(), wanted.ok() ? MV_OK : wanted.status().code());
            if (!wanted.ok()) continue;
            assert_same(wanted.value().dtype, from_device(out).data(), wanted.value().data, wanted.value().stored(),
                        text("reduce", op, dtype) + " along " + std::to_string(axis) + " of " + in.text());
          }
        }
      }
    }
  }
}

/// The arrays of a tensor that an updater changes.
struct Arrays {
  Tensor values, backup;
  std::vector<Tensor> states;
};

void updates_have_the_bits_of_the_processor(void**) {
  const char* const kSpecs[] = {"sgd rate=0.1 decay=0.01",
                                "momentum rate=0.1 momentum=0.9 dampening=0.1 decay=0.01",
                                "momentum nesterov=1",
                                "adagrad rate=0.1",
                                "ftrl",
                                "dcasgd rate=0.1",
                                "dcasgd mean_square=0.9",
                                "mx.sgd",
                                "mx.sgd momentum=0.9 wd=0.1 clip_gradient=1",
                                "mx.signum",
                                "mx.ftml",
                                "mx.lbsgd momentum=0.9 batch_scale=2",
                                "mx.lbsgd warmup_strategy=lars momentum=0.9 wd=0.01",
                                "mx.dcasgd momentum=0.9",
                                "mx.nag momentum=0.9",
                                "mx.sgld seed=3",
                                "mx.adam wd=0.01 rescale_grad=0.5",
                                "mx.adagrad",
                                "mx.rmsprop",
                                "mx.rmsprop centered=1",
                                "mx.adadelta",
                                "mx.test",
                                "mx.ftrl",
                                "mx.adamax",
                                "mx.nadam",
                                "mx.adamw wd=0.1",
                                "mx.lamb",
                                "mx.lion wd=0.1"};
  const size_t kCounts[] = {1, 0, 31, 32, 33, 4096, 4097, 20000};
  for (const char* const words : kSpecs) {
    const auto spec = must(shard::parse_updater(words));
    for (const mv_dtype dtype : {MV_F32, MV_F64}) {
      for (const mv_dtype gradient : kFloats) {
        if (tensor::storage_dtype(gradient) != dtype) continue;
        const auto updater = shard::make_updater(spec, dtype);
        std::vector<Arrays> keys;
        for (const size_t count : kCounts) {
          Arrays key{varied(dtype, count, 10, true), varied(dtype, count, 11, true), {}};
          shard::copy_inverted(key.backup.data, key.backup.data, key.backup.stored_bytes());
          for (size_t i = 0; i < updater->states(); ++i) key.states.push_back(make(dtype, {static_cast<int64_t>(count)}));
          keys.push_back(std::move(key));
        }
        // On the device: all keys, whose arrays are copies.
        std::vector<Memory> values, backups, states, gradients;
        for (const Arrays& key : keys) {
          values.push_back(to_device(key.values));
          backups.push_back(to_device(key.backup));
          for (const Tensor& state : key.states) states.push_back(to_device(state));
        }
        std::vector<double> shared(updater->shared().begin(), updater->shared().end());
        for (uint64_t turn = 1; turn <= 3; ++turn) {
          std::vector<device::Target> targets;
          std::vector<std::vector<void*>> places(keys.size());
          gradients.clear();
          for (size_t k = 0; k < keys.size(); ++k) {
            Arrays& key = keys[k];
            const shard::Turn progress = {.count = turn, .latest = turn, .before = turn - 1, .stream = k};
            updater->advance(progress, shared);
            const shard::Step step = updater->counts() ? updater->step(progress, shared) : shard::Step();
            const Tensor added = varied(gradient, key.values.stored(), static_cast<uint32_t>(100 * turn + k), true);
            gradients.push_back(to_device(added));
            for (size_t i = 0; i < key.states.size(); ++i) places[k].push_back(states[k * key.states.size() + i].as());
            targets.push_back({values[k].as(), gradients.back().as(), updater->keeps_backups() ? backups[k].as() : nullptr, places[k],
                               key.values.stored(), 7 * k, step});
            std::vector<std::byte*> arrays(shard::kMostStates);
            for (size_t i = 0; i < key.states.size(); ++i) arrays[i] = key.states[i].data;
            const shard::Block block = {.count = key.values.stored(),
                                        .values = key.values.data,
                                        .states = arrays.data(),
                                        .backup = updater->keeps_backups() ? key.backup.data : nullptr,
                                        .step = &step,
                                        .first = 7 * k};
            if (block.count > 0) shard::apply_added(*updater, gradient, block, key.states.size(), added.data);
          }
          must(device::update(stream(), spec, dtype, gradient, targets));
        }
        for (size_t k = 0; k < keys.size(); ++k) {
          const std::string what = std::string(words) + " on " + keys[k].values.text() + " with " + std::string(tensor::dtype_name(gradient));
          if (updater->sums() == 0) {
            assert_same(values[k], keys[k].values, what);
            for (size_t i = 0; i < keys[k].states.size(); ++i)
              assert_same(states[k * keys[k].states.size() + i], keys[k].states[i], what + ", state");
            continue;
          }
          // The norms are summed in another order, which is little beside the largest value.
          const auto bytes = from_device(values[k]);
          const auto at = [&](const std::byte* data, size_t i) { return tensor::load_element(dtype, data + i * tensor::dtype_bytes(dtype)); };
          double largest = 0;
          for (size_t i = 0; i < keys[k].values.stored(); ++i) largest = std::max(largest, std::fabs(at(keys[k].values.data, i)));
          for (size_t i = 0; i < keys[k].values.stored(); ++i) {
            const double mine = at(bytes.data(), i), theirs = at(keys[k].values.data, i);
            if (std::fabs(mine - theirs) > (dtype == MV_F32 ? 1e-6 : 1e-14) * largest)
              fail_msg("%s: element %zu is %.17g, not %.17g", what.c_str(), i, mine, theirs);
          }
        }
      }
    }
  }
}

void thousands_of_keys_take_few_launches(void**) {
  const device::Device& on = stream().device();
  mv_device_event begin = nullptr, end = nullptr;
  must(on.check(on.plugin().event_make(on.number(), &begin), "event"));
  must(on.check(on.plugin().event_make(on.number(), &end), "event"));
  constexpr size_t kKeys = 3000, kCount = 10;
  for (const char* const words : {"mx.adam", "mx.lamb"}) {
    const auto spec = must(shard::parse_updater(words));
    const auto updater = shard::make_updater(spec, MV_F32);
    const Tensor start = make(MV_F32, {kKeys * kCount * 4});
    must(tensor::fill("test", start, 1));
    const Memory memory = to_device(start);
    std::vector<device::Target> targets(kKeys);
    std::vector<std::array<void*, 2>> states(kKeys);
    for (size_t k = 0; k < kKeys; ++k) {
      float* const at = memory.as<float>() + k * kCount * 4;
      states[k] = {at + 2 * kCount, at + 3 * kCount};
      targets[k] = {at, at + kCount, nullptr, states[k], kCount, 0, updater->step({}, {})};
    }
    must(on.check(on.plugin().event_record(on.number(), begin, stream().handle()), "event"));
    must(device::update(stream(), spec, MV_F32, MV_F32, targets));
    must(on.check(on.plugin().event_record(on.number(), end, stream().handle()), "event"));
    double millis = 0;
    must(on.check(on.plugin().event_millis(begin, end, &millis), "event"));
    if (is_emulated()) assert_true(millis == static_cast<double>(device::update_launches(spec)));  // a millisecond each
    assert_true(device::update_launches(spec) <= 4);
    const auto bytes = from_device(memory);
    const auto* const values = reinterpret_cast<const float*>(bytes.data());
    for (size_t k = 0; k < kKeys; ++k) assert_true(values[k * kCount * 4] < 1 && values[k * kCount * 4] == values[0]);
  }
  on.plugin().event_free(on.number(), begin);
  on.plugin().event_free(on.number(), end);
}

void encode_one(const codec::Codec& codec, const Memory& gradient, const Memory& residual, size_t count, const Memory& out) {
  const codec::Encoding one{gradient.as<std::byte>(), MV_F32, residual.as<float>(), count, out.as<std::byte>()};
  must(device::encode(stream(), codec, {&one, 1}));
}
void decode_one(const codec::Codec& codec, const Memory& encoded, const Memory& values, size_t count, bool adds) {
  const codec::Decoding one{encoded.as<std::byte>(), values.as<float>(), count};
  must(device::decode(stream(), codec, {&one, 1}, adds));
}

void codecs_have_the_bytes_of_the_processor(void**) {
  for (const char* const words : {"2bit", "2bit threshold=0.01", "1bit", "1bit threshold=-3 scale=0.25", "fp16", "bf16", "int8", "int8 block=17", "int8 block=64", "int8 block=5000",
                                  "topk", "topk ratio=0.3", "topk ratio=1", "topk k=7"}) {
    const auto codec = codec::make(must(codec::parse(words)));
    for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{33}, size_t{10000}, size_t{70001}}) {
      const Tensor residual = varied(MV_F32, count, 13, true);
      Tensor summed = varied(MV_F32, count, 14, true);
      const Memory m_residual = to_device(residual), m_summed = to_device(summed);
      const size_t bytes = codec->encoded_bytes(count);
      const Memory out = must(Memory::make(stream(), device::encoding_room(*codec, count))), decoded = must(Memory::make(stream(), count * sizeof(float)));
      std::vector<std::byte> wanted(bytes);
      for (uint32_t round = 0; round < 3; ++round) {
        const Tensor gradient = varied(MV_F32, count, 15 + round, true);
        const Memory m_gradient = to_device(gradient);
        codec->encode(reinterpret_cast<const float*>(gradient.data), reinterpret_cast<float*>(residual.data), count, wanted.data());
        encode_one(*codec, m_gradient, m_residual, count, out);
        const auto encoded = from_device(out);
        assert_true(std::ranges::equal(std::span(encoded).first(bytes), wanted));
        assert_same(m_residual, residual, std::string(words) + ": the residual");
      }
      const Tensor values = make(MV_F32, {static_cast<int64_t>(count)});
      codec->decode(wanted.data(), reinterpret_cast<float*>(values.data), count);
      decode_one(*codec, out, decoded, count, false);
      assert_same(decoded, values, std::string(words) + ": decoded");
      codec->decode_add(wanted.data(), reinterpret_cast<float*>(summed.data), count);
      decode_one(*codec, out, m_summed, count, true);
      assert_same(m_summed, summed, std::string(words) + ": added");
    }
  }
}

void nonfinite_values_are_found(void**) {
  constexpr size_t kCount = 9001;
  for (const mv_dtype dtype : kFloats)
    for (const double value : {HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN)})
      for (const size_t at : {size_t{0}, kCount / 2, kCount - 1, kCount}) {
        std::vector<Tensor> here{varied(dtype, kCount, 51, true), varied(dtype, kCount, 52, true), varied(dtype, 1, 53, true)};
        if (at < kCount) tensor::store_element(dtype, here[1].data + at * tensor::dtype_bytes(dtype), value);
        const std::vector<uint32_t> zeros(here.size());
        const Memory found = must(Memory::of(stream(), zeros.data(), zeros.size() * sizeof(uint32_t)));
        std::vector<Memory> there;
        std::vector<mv_device_nonfinite> works;
        for (const Tensor& one : here) {
          there.push_back(to_device(one));
          works.push_back({found.as<uint32_t>() + works.size(), there.back().as(), one.stored(), dtype, 0});
        }
        must(stream().launch_all(MV_DEVICE_NONFINITE, std::span<const mv_device_nonfinite>(works)));
        const auto bytes = from_device(found);
        for (size_t i = 0; i < here.size(); ++i)
          assert_int_equal(reinterpret_cast<const uint32_t*>(bytes.data())[i], math::all_finite_bytes(dtype, here[i].data, here[i].stored()) ? 0 : 1);
      }
}

/// 0 unless the device is emulated.
int64_t submitted() {
  void* const emulation = dlopen(EMULATION, RTLD_NOW | RTLD_NOLOAD);
  return emulation != nullptr ? reinterpret_cast<int64_t (*)()>(dlsym(emulation, "emulation_submitted"))() : 0;
}

/// More arrays than a launch takes, of all floats that codecs have on devices: the number of launches depends on that of the codec's kernels.
void many_arrays_are_encoded_in_few_launches(void**) {
  constexpr size_t kArrays = 300;
  for (const char* const words : {"2bit", "1bit", "fp16", "bf16", "int8", "int8 block=18", "topk"}) {
    const auto codec = codec::make(must(codec::parse(words)));
    std::vector<Tensor> residuals;
    std::vector<Memory> gradients, left, outs, wides, rounded;
    std::vector<std::vector<std::byte>> wanted;
    std::vector<Tensor> values;
    std::vector<codec::Encoding> encodings;
    std::vector<codec::Decoding> decodings;
    for (size_t i = 0; i < kArrays; ++i) {
      const mv_dtype dtype = std::array{MV_F32, MV_F16, MV_BF16}[i / 50 % 3];
      const size_t count = i == 77 ? 20'000 : i % 5 == 0 ? i % 41 : 4 * (i % 23);
      const Tensor gradient = varied(dtype, count, static_cast<uint32_t>(i), true);
      const Tensor residual = residuals.emplace_back(varied(MV_F32, count, static_cast<uint32_t>(1000 + i), true));
      left.push_back(to_device(residual));
      gradients.push_back(to_device(gradient));
      outs.push_back(must(Memory::make(stream(), device::encoding_room(*codec, count) + 1)));
      wides.push_back(must(Memory::make(stream(), count * sizeof(float) + 1)));
      rounded.push_back(must(Memory::make(stream(), count * tensor::dtype_bytes(dtype) + 1)));
      auto& bytes = wanted.emplace_back(codec->encoded_bytes(count));
      codec::encode_values(*codec, dtype, gradient.data, residual.data, count, bytes.data());
      codec::decode_values(*codec, dtype, bytes.data(), values.emplace_back(make(dtype, {static_cast<int64_t>(count)})).data, count);
      encodings.push_back({gradients.back().as<std::byte>(), dtype, left.back().as<float>(), count, outs.back().as<std::byte>()});
      decodings.push_back({outs.back().as<std::byte>(), wides.back().as<float>(), count, dtype != MV_F32 ? rounded.back().as<std::byte>() : nullptr, dtype});
    }
    const int64_t before = submitted();
    must(device::encode(stream(), *codec, encodings));
    must(device::decode(stream(), *codec, decodings, false));
    assert_true(submitted() - before < (codec->spec().name == "topk" ? 120 : 40));
    for (size_t i = 0; i < kArrays; ++i) {
      const auto encoded = from_device(outs[i]), decoded = from_device(decodings[i].rounded != nullptr ? rounded[i] : wides[i]);
      assert_true(std::ranges::equal(std::span(encoded).first(wanted[i].size()), wanted[i]));
      const auto after = from_device(left[i]);
      assert_true(std::ranges::equal(after, std::span(residuals[i].data, residuals[i].stored_bytes())));
      assert_true(std::ranges::equal(std::span(decoded).first(values[i].stored_bytes()), std::span(values[i].data, values[i].stored_bytes())));
    }
  }
}

void the_first_of_equal_values_are_sent(void**) {
  for (const float other : {1.0f, 2.0f, HUGE_VALF, std::nanf("")})
    for (const char* const words : {"topk k=1", "topk ratio=0.2", "topk ratio=0.9"}) {
      const auto codec = codec::make(must(codec::parse(words)));
      constexpr size_t kCount = 50'001;
      const Tensor gradient = make(MV_F32, {kCount}), residual = make(MV_F32, {kCount});
      auto* const values = reinterpret_cast<float*>(gradient.data);
      for (size_t i = 0; i < kCount; ++i) values[i] = i % 3 == 0 ? other : i % 2 == 0 ? 1.0f : -1.0f;
      std::memset(residual.data, 0, kCount * sizeof(float));
      const Memory m_gradient = to_device(gradient), m_residual = to_device(residual);
      const Memory out = must(Memory::make(stream(), device::encoding_room(*codec, kCount)));
      encode_one(*codec, m_gradient, m_residual, kCount, out);
      std::vector<std::byte> wanted(codec->encoded_bytes(kCount));
      codec->encode(values, reinterpret_cast<float*>(residual.data), kCount, wanted.data());
      const auto encoded = from_device(out);
      assert_true(std::ranges::equal(std::span(encoded).first(wanted.size()), wanted));
      assert_same(m_residual, residual, std::string(words) + ": the residual");
    }
}

void matrices_are_multiplied_and_added(void**) {
  for (const mv_dtype dtype : kFloats) {
    // By columns: the transposes of the library's matrices, so c^T = b^T a^T.
    const Tensor a = make(dtype, {7, 5}), b = make(dtype, {5, 9});
    must(tensor::fill_uniform("test", a, 1, -1, 1));
    must(tensor::fill_uniform("test", b, 2, -1, 1));
    const mv_dtype exact = tensor::storage_dtype(dtype);
    const Tensor product =
        must(tensor::matmul("test", heap(), must(tensor::cast("test", heap(), a, exact)), must(tensor::cast("test", heap(), b, exact)), 0, nullptr));
    const Tensor wanted = must(tensor::cast("test", heap(), product, dtype));
    const Memory left = to_device(a), right = to_device(b), out = must(Memory::make(stream(), wanted.stored_bytes()));
    const auto status = stream().blas({0, 0, 0, dtype, 9, 7, 5, 9, 5, 9, right.as(), left.as(), out.as(), 1, 0});
    if (status.code() == MV_ENOSYS && !is_emulated()) skip();  // without cuBLAS
    must(status);
    const auto bytes = from_device(out);
    const Tensor mine = must(tensor::make_copy_of("test", heap(), bytes.data(), 63, dtype, wanted.shape));
    assert_true(must(tensor::close("test", mine, wanted, 0, dtype == MV_F64 ? 1e-14 : dtype == MV_F32 ? 1e-6 : 0.05)));
    mv_device_blas sum = {1, 0, 1, dtype, 5, 7, 0, 5, 7, 5, left.as(), nullptr, nullptr, 0.25, 0.75};
    const Tensor turned = must(tensor::transpose("test", heap(), a));
    const Memory other = to_device(turned), mixed = must(Memory::make(stream(), a.stored_bytes()));
    sum.b = other.as();
    sum.c = mixed.as();
    if (math::is_half(dtype)) {
      must_fail(stream().blas(sum), MV_EDTYPE, "f32 and f64");
      continue;
    }
    must(stream().blas(sum));
    const auto mixed_bytes = from_device(mixed);
    const Tensor same = must(tensor::make_copy_of("test", heap(), mixed_bytes.data(), 35, dtype, a.shape));
    assert_true(must(tensor::close("test", same, a, 1e-6, 0)));
  }
}

void a_plugin_that_does_not_fit_is_refused(void**) {
  must_fail(device::load_plugin("/nowhere/libpolyverso_cuda.so").status(), MV_ENOSYS, "make cuda");
  must_fail(device::load_plugin("libm.so.6").status(), MV_ENOSYS, "polyverso_device_plugin");
  if (!is_emulated()) return;
  setenv("POLYVERSO_EMULATION", "interface=9", 1);
  must_fail(device::load_plugin(EMULATION).status(), MV_EVERSION, "install both from one build");
  unsetenv("POLYVERSO_EMULATION");
}

void missing_devices_are_told(void**) {
  const auto plugin = must(device::load_plugin(plugin_file()));
  must_fail(device::Device::open(plugin, 1000).status(), MV_ENOTFOUND, ":1000");
  must_fail(device::Device::open(plugin, -1).status(), MV_ENOTFOUND, ":-1");
  if (!is_emulated()) return;
  const std::pair<const char*, const char*> kCases[] = {{"driver=0", "no driver"}, {"driver=1", "too old"}, {"devices=0", "no device"}};
  for (const auto& [setting, words] : kCases) {
    setenv("POLYVERSO_EMULATION", setting, 1);
    must_fail(device::Device::open(plugin, 0).status(), MV_ENOSYS, words);
  }
  unsetenv("POLYVERSO_EMULATION");
}

void memory_that_is_missing_is_told_and_the_device_goes_on(void**) {
  must_fail(Memory::make(stream(), uint64_t{1} << 50).status(), MV_ENOMEM, "free tensors");
  const Tensor values = varied(MV_F32, 100, 16);
  assert_same(to_device(values), values, "a copy");
  if (is_emulated()) must_fail(stream().copy(values.data, values.data, 8), MV_EINVAL, "neither side");
}

void unknown_work_is_refused(void**) {
  const Tensor values = make(MV_F32, {8});
  const Memory memory = to_device(values);
  must_fail(stream().launch(MV_DEVICE_UNARY, mv_device_unary{memory.as(), memory.as(), 8, 99, MV_F32}), MV_EINVAL, "different builds");
  must_fail(stream().launch(MV_DEVICE_FILL, mv_device_axpy{memory.as(), memory.as(), 8, 1, MV_F32, MV_F32}), MV_EINVAL, "different builds");
  must_fail(device::update(stream(), must(shard::parse_updater("add")), MV_F32, MV_F32, {}), MV_ENOSYS, "add");
  must_fail(device::update(stream(), must(shard::parse_updater("sgd")), MV_F16, MV_F16, {}), MV_EDTYPE, "f16");
  device::Target target;
  must_fail(device::update(stream(), must(shard::parse_updater("mx.adam")), MV_F32, MV_F32, {&target, 1}), MV_ESHAPE, "mx.adam has 2");
}

/// The last test: the device is lost.
void an_error_that_stays_is_told_by_every_call(void**) {
  if (!is_emulated()) skip();
  setenv("POLYVERSO_EMULATION", "launches=0", 1);
  const auto is_lost = [](const base::Status& status) { must_fail(status, MV_ESYSTEM, "restart it"); };
  is_lost(stream().wait());
  is_lost(Memory::make(stream(), 8).status());
  is_lost(device::Stream::make(stream().device()).status());
  is_lost(stream().device().describe().status());
  unsetenv("POLYVERSO_EMULATION");
}

void blas_that_is_missing_is_told(void**) {
  if (!is_emulated()) skip();
  setenv("POLYVERSO_EMULATION", "blas=0", 1);
  must_fail(stream().blas({}), MV_ENOSYS, "install it");
  unsetenv("POLYVERSO_EMULATION");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_plugin_that_does_not_fit_is_refused),
      cmocka_unit_test(missing_devices_are_told),
      cmocka_unit_test(memory_that_is_missing_is_told_and_the_device_goes_on),
      cmocka_unit_test(unknown_work_is_refused),
      cmocka_unit_test(casts_round_as_the_processor),
      cmocka_unit_test(elements_are_computed_as_on_the_processor),
      cmocka_unit_test(powers_are_close_and_those_of_integers_exact),
      cmocka_unit_test(arrays_are_filled_and_arranged),
      cmocka_unit_test(arrays_are_combined_in_place),
      cmocka_unit_test(models_are_averaged_as_on_the_processor),
      cmocka_unit_test(steps_of_pairs_are_those_of_the_processor),
      cmocka_unit_test(elastic_steps_are_those_of_the_processor),
      cmocka_unit_test(factors_are_expanded_in_order),
      cmocka_unit_test(rows_are_taken_put_and_found),
      cmocka_unit_test(random_numbers_are_those_of_the_processor),
      cmocka_unit_test(reductions_have_the_order_of_the_processor),
      cmocka_unit_test(updates_have_the_bits_of_the_processor),
      cmocka_unit_test(thousands_of_keys_take_few_launches),
      cmocka_unit_test(codecs_have_the_bytes_of_the_processor),
      cmocka_unit_test(nonfinite_values_are_found),
      cmocka_unit_test(many_arrays_are_encoded_in_few_launches),
      cmocka_unit_test(the_first_of_equal_values_are_sent),
      cmocka_unit_test(matrices_are_multiplied_and_added),
      cmocka_unit_test(blas_that_is_missing_is_told),
      cmocka_unit_test(an_error_that_stays_is_told_by_every_call),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
