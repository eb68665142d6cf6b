/// Tensors. Part of polyverso.hpp.
#ifndef POLYVERSO_CPP_TENSOR_HPP
#define POLYVERSO_CPP_TENSOR_HPP

#include <polyverso/cpp/base.hpp>

namespace polyverso {

/// A device, by its number or a name such as "cuda:0"; MV_HOST is the host. Nothing is opened until it is used.
class Device {
 public:
  /* implicit */ Device(std::int32_t number) : number_(number) {}
  /* implicit */ Device(const char* name) : number_(detail::value<std::int32_t>(mv_device_find, name)) {}
  /// How many there are: 0 without a plug-in, driver or device; describe() then says why.
  static std::int32_t count() { return detail::value<std::int32_t>(mv_device_count); }

  std::int32_t number() const { return number_; }
  mv_device_info describe() const {
    mv_device_info info = MV_DEVICE_INFO_INIT;
    check(mv_device_describe(number_, &info));
    return info;
  }
  /// Waits for its work, and throws its errors.
  void wait() const { check(mv_device_wait(number_)); }
  /// A cudaStream_t of the caller's for all further work; 0: the library's own.
  void set_stream(std::uint64_t stream) const { check(mv_device_set_stream(number_, stream)); }
  std::uint64_t stream() const { return detail::value<std::uint64_t>(mv_device_current_stream, number_); }
  /// Lets later work of another stream begin after the work so far.
  void order(std::uint64_t stream) const { check(mv_device_order(number_, stream)); }
  /// Lets further work here begin after the work of another stream so far.
  void follow(std::uint64_t stream) const { check(mv_device_follow(number_, stream)); }

 private:
  std::int32_t number_;
};

/// A dense or row-sparse array of numbers. Copies are made by copy(), because a tensor may be a view. The destructor frees the handle; the
/// memory goes with the last tensor that shares it.
class Tensor {
 public:
  /// Zeros: Tensor(MV_F32, {2, 3}).
  Tensor(mv_dtype dtype, Ids shape) : Tensor(detail::value<mv_tensor>(mv_tensor_create, dtype, shape.data(), shape.size())) {}
  Tensor(mv_dtype dtype, std::initializer_list<std::int64_t> shape) : Tensor(dtype, Ids(shape.begin(), shape.size())) {}
  /// A copy of values.
  static Tensor from(const In& values, Ids shape) {
    return Tensor(detail::value<mv_tensor>(mv_tensor_from, values.data, values.count, values.dtype, shape.data(), shape.size()));
  }
  static Tensor from(const In& values, std::initializer_list<std::int64_t> shape) { return from(values, Ids(shape.begin(), shape.size())); }
  /// A view of the caller's memory, lent until this tensor and all that share its memory are gone.
  static Tensor view(const Out& values, Ids shape) {
    return Tensor(detail::value<mv_tensor>(mv_tensor_view, values.data, values.count, values.dtype, shape.data(), shape.size()));
  }
  static Tensor view(const Out& values, std::initializer_list<std::int64_t> shape) { return view(values, Ids(shape.begin(), shape.size())); }
  /// Zeros on a device: Tensor::on("cuda:0", MV_F32, {2, 3}).
  static Tensor on(Device device, mv_dtype dtype, Ids shape) {
    return Tensor(detail::value<mv_tensor>(mv_tensor_create_on, device.number(), dtype, shape.data(), shape.size()));
  }
  static Tensor on(Device device, mv_dtype dtype, std::initializer_list<std::int64_t> shape) {
    return on(device, dtype, Ids(shape.begin(), shape.size()));
  }
  /// A view of memory of a device, lent like that of view().
  static Tensor view_on(Device device, std::uint64_t address, std::uint64_t count, mv_dtype dtype, Ids shape) {
    return Tensor(detail::value<mv_tensor>(mv_tensor_view_on, device.number(), address, count, dtype, shape.data(), shape.size()));
  }
  /// A row-sparse tensor of `height` rows, with row i of the values for rows[i].
  static Tensor sparse(Ids rows, const Tensor& values, std::int64_t height) {
    return Tensor(detail::value<mv_tensor>(mv_tensor_sparse, rows.data(), rows.size(), values.id(), height));
  }
  /// Takes over a handle from a C function.
  explicit Tensor(mv_tensor id) noexcept : handle_(id) {}

  mv_tensor id() const noexcept { return handle_.id(); }
  /// Gives the handle to a C function, which must free it.
  mv_tensor release() noexcept { return handle_.release(); }

  mv_tensor_info describe() const {
    mv_tensor_info info = MV_TENSOR_INFO_INIT;
    check(mv_tensor_describe(id(), &info));
    return info;
  }
  std::vector<std::int64_t> shape() const {
    const mv_tensor_info info = describe();
    return {info.shape, info.shape + info.dims};
  }
  mv_dtype dtype() const { return describe().dtype; }
  std::uint64_t count() const { return describe().count; }
  /// The elements of a dense tensor; ArgumentError unless T is its element type.
  template <Element T>
  std::span<T> values() const {
    const Out all = data();
    if (all.dtype != dtype_of<T>) raise(MV_EDTYPE, "values() of another element type than the tensor's: " + text());
    return {static_cast<T*>(all.data), all.count};
  }
  /// The same of any dtype.
  Out data() const {
    Out all;
    check(mv_tensor_data(id(), &all.data, &all.count, &all.dtype));
    return all;
  }
  /// The address of the elements, in the memory of device().
  std::uint64_t address() const { return detail::value<std::uint64_t>(mv_tensor_address, id()); }
  Device device() const { return static_cast<std::int32_t>(describe().device); }
  std::string text() const {
    return detail::text([&](auto... out) { return mv_tensor_text(id(), out...); });
  }
  double get(Ids index) const {
    double value = 0;
    std::int64_t integer = 0;
    check(mv_tensor_get(id(), index.data(), index.size(), &value, &integer));
    return value;
  }
  double get(std::initializer_list<std::int64_t> index) const { return get(Ids(index.begin(), index.size())); }
  void set(Ids index, double value) const { check(mv_tensor_set(id(), index.data(), index.size(), value)); }
  void set(std::initializer_list<std::int64_t> index, double value) const { set(Ids(index.begin(), index.size()), value); }

  // Copies and views.
  Tensor copy() const { return result(mv_tensor_copy, id(), mv_tensor{0}); }
  void copy_to(const Tensor& out) const { into(out, mv_tensor_copy, id()); }
  /// A copy on a device, or with MV_HOST on the host.
  Tensor to(Device device) const { return result(mv_tensor_to, id(), device.number()); }
  Tensor cast(mv_dtype dtype) const { return result(mv_tensor_cast, id(), dtype); }
  Tensor reshape(Ids shape) const { return result(mv_tensor_reshape, id(), shape.data(), shape.size()); }
  Tensor reshape(std::initializer_list<std::int64_t> shape) const { return reshape(Ids(shape.begin(), shape.size())); }
  Tensor slice(std::int64_t begin, std::int64_t end) const { return result(mv_tensor_slice, id(), begin, end); }
  Tensor row(std::int64_t row) const { return result(mv_tensor_row, id(), row); }
  Tensor take(Ids rows) const { return result(mv_tensor_take, id(), rows.data(), rows.size()); }
  Tensor transpose() const { return result(mv_tensor_transpose, id()); }
  Tensor to_dense() const { return result(mv_tensor_to_dense, id()); }
  Tensor to_sparse() const { return result(mv_tensor_to_sparse, id()); }
  /// The ids and the rows of a row-sparse tensor, as views.
  std::pair<Tensor, Tensor> parts() const {
    mv_tensor ids = 0;
    mv_tensor rows = 0;
    check(mv_tensor_parts(id(), &ids, &rows));
    return {Tensor(ids), Tensor(rows)};
  }

  // Values.
  void fill(double value) const { check(mv_tensor_fill(id(), value)); }
  void range(double start, double step) const { check(mv_tensor_range(id(), start, step)); }
  void uniform(std::int64_t seed, double low, double high) const { check(mv_tensor_uniform(id(), seed, low, high)); }
  void normal(std::int64_t seed, double mean, double deviation) const { check(mv_tensor_normal(id(), seed, mean, deviation)); }

  // Arithmetic: mv_tensor_unary_op, mv_tensor_binary_op, mv_tensor_reduce_op, mv_tensor_matmul_flag. The ..._to functions write into `out`.
  Tensor unary(std::int32_t op) const { return result(mv_tensor_unary, op, id(), mv_tensor{0}); }
  void unary_to(const Tensor& out, std::int32_t op) const { into(out, mv_tensor_unary, op, id()); }
  Tensor binary(std::int32_t op, const Tensor& other) const { return result(mv_tensor_binary, op, id(), other.id(), mv_tensor{0}); }
  void binary_to(const Tensor& out, std::int32_t op, const Tensor& other) const { into(out, mv_tensor_binary, op, id(), other.id()); }
  /// this op value; swapped: value op this.
  Tensor scalar(std::int32_t op, double value, bool swapped = false) const {
    return result(mv_tensor_scalar, op, id(), value, static_cast<std::int32_t>(swapped), mv_tensor{0});
  }
  void scalar_to(const Tensor& out, std::int32_t op, double value, bool swapped = false) const {
    into(out, mv_tensor_scalar, op, id(), value, static_cast<std::int32_t>(swapped));
  }
  /// this += alpha * x.
  void axpy(double alpha, const Tensor& x) const { check(mv_tensor_axpy(alpha, x.id(), id())); }
  Tensor reduce(std::int32_t op, std::int64_t axis = MV_ALL_AXES) const { return result(mv_tensor_reduce, op, id(), axis); }
  double dot(const Tensor& other) const { return detail::value<double>(mv_tensor_dot, id(), other.id()); }
  bool close_to(const Tensor& other, double relative = 0, double absolute = 0) const {
    return detail::value<std::int32_t>(mv_tensor_close, id(), other.id(), relative, absolute) != 0;
  }
  Tensor matmul(const Tensor& other, std::int32_t flags = 0) const { return result(mv_tensor_matmul, id(), other.id(), flags, mv_tensor{0}); }
  void matmul_to(const Tensor& out, const Tensor& other, std::int32_t flags = 0) const { into(out, mv_tensor_matmul, id(), other.id(), flags); }

  friend Tensor operator-(const Tensor& a) { return a.unary(MV_NEG); }
  friend Tensor operator+(const Tensor& a, const Tensor& b) { return a.binary(MV_ADD, b); }
  friend Tensor operator-(const Tensor& a, const Tensor& b) { return a.binary(MV_SUB, b); }
  friend Tensor operator*(const Tensor& a, const Tensor& b) { return a.binary(MV_MUL, b); }
  friend Tensor operator/(const Tensor& a, const Tensor& b) { return a.binary(MV_DIV, b); }
  friend Tensor operator+(const Tensor& a, double b) { return a.scalar(MV_ADD, b); }
  friend Tensor operator-(const Tensor& a, double b) { return a.scalar(MV_SUB, b); }
  friend Tensor operator*(const Tensor& a, double b) { return a.scalar(MV_MUL, b); }
  friend Tensor operator/(const Tensor& a, double b) { return a.scalar(MV_DIV, b); }
  friend Tensor operator+(double a, const Tensor& b) { return b.scalar(MV_ADD, a, true); }
  friend Tensor operator-(double a, const Tensor& b) { return b.scalar(MV_SUB, a, true); }
  friend Tensor operator*(double a, const Tensor& b) { return b.scalar(MV_MUL, a, true); }
  friend Tensor operator/(double a, const Tensor& b) { return b.scalar(MV_DIV, a, true); }

 private:
  template <class F, class... Arguments>
  static Tensor result(F f, Arguments... arguments) {
    return Tensor(detail::value<mv_tensor>(f, arguments...));
  }
  template <class F, class... Arguments>
  static void into(const Tensor& out, F f, Arguments... arguments) {
    detail::value<mv_tensor>(f, arguments..., out.id());
  }

  detail::Handle<mv_tensor_free> handle_;
};

inline Out::Out(const Tensor& tensor) : Out(tensor.data()) {}
inline In::In(const Tensor& tensor) {
  const Out all = tensor.data();
  *this = In(all.data, all.count, all.dtype);
}

}  // namespace polyverso

#endif
