#include "api/distlearn/async_ea.hpp"

#include <utility>

#include "api/distlearn/all_reduce_ea.hpp"
#include "api/group/stage.hpp"
#include "base/log.hpp"

namespace mv::distlearn {

base::Status AsyncEa::check(const api::TableInfo& table, int64_t tau, double alpha) {
  if (auto status = AllReduceEa::check(tau, alpha); !status.ok()) return status;
  if (table.spec.dtype != MV_F32 && table.spec.dtype != MV_F64)
    return base::error(MV_EDTYPE, "table \"{}\" is {}: a centre must be f32 or f64", table.spec.name, tensor::dtype_name(table.spec.dtype));
  if (table.spec.kind != MV_ARRAY && table.spec.kind != MV_MATRIX)
    return base::error(MV_EINVAL, "table \"{}\" is sparse: a centre must be an array or a matrix", table.spec.name);
  if (!table.spec.updater.name.empty() && table.spec.updater.name != "add")
    return base::error(MV_EINVAL, "table \"{}\" has the updater {}: a centre needs the updater add", table.spec.name, table.spec.updater.name);
  return {};
}

AsyncEa::AsyncEa(api::Node& node, api::TableRef table, const api::TableSpec& spec, int64_t tau, double alpha)
    : node_(node),
      table_(std::move(table)),
      dtype_(spec.dtype),
      elements_(spec.rows * spec.cols),
      tau_(tau),
      alpha_(alpha) {}

base::Status AsyncEa::check_shape(const Arrays& parameters) const {
  if (auto status = check_floats(parameters); !status.ok()) return status;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (tensor::storage_dtype(parameters[i].dtype) != dtype_)
      return base::error(MV_EDTYPE, "array {} is {}, but the centre's table is {}", i, tensor::dtype_name(parameters[i].dtype),
                         tensor::dtype_name(dtype_));
  const uint64_t elements = elements_of(parameters);
  if (elements != elements_) return base::error(MV_ESHAPE, "{} parameters given, but the centre's table has {}", elements, elements_);
  return {};
}

/// The centre's memory as arrays of the parameters' shape.
Arrays AsyncEa::like(const Arrays& parameters) const {
  Arrays parts;
  uint64_t first = 0;
  for (const Array& array : parameters) {
    const Arrays part = cut(center_.arrays(), first, array.count);
    parts.push_back(part.empty() ? Array{nullptr, 0, dtype_} : part.front());
    first += array.count;
  }
  return parts;
}

/// Brings the centre to the parameters, for a call that begins.
base::Status AsyncEa::settle(const Arrays& parameters) {
  if (pending_ != nullptr) return {};  // it uses the memory
  const auto places = places_of(parameters, node_.devices().find);
  if (!places.ok()) return places.status();
  return center_.settle({{nullptr, elements_, dtype_}}, {common_device(parameters, places.value())});
}

api::MutableData AsyncEa::center() const {
  const Array& values = center_.arrays().front();
  return {values.data, values.count, values.dtype, center_.places().front()};
}

/// work(parameters, places) where the centre is: on its device, or on the host, on copies of parameters that are not there.
template <typename Work>
base::Status AsyncEa::at_center(Arrays parameters, const Work& work) const {
  tensor::Device* const place = center_.places().front();
  Places places(parameters.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = parameters[i].count > 0 ? place : nullptr;
  const auto staging = place == nullptr ? api::stage_arrays(parameters, node_.devices().find) : std::shared_ptr<api::Staging>();
  if (!staging.ok()) return staging.status();
  if (auto status = work(parameters, places); !status.ok()) return status;
  if (staging.value() != nullptr) return staging.value()->finish();
  return wait_for(places);
}

base::Status AsyncEa::move_to_center(const Arrays& parameters) {
  return at_center(parameters, [&](const Arrays& here, const Places& places) {
    const Arrays center = like(here);
    return elastic(here, center, center, alpha_, places);
  });
}

base::Status AsyncEa::take(const Arrays& parameters) const {
  return at_center(parameters, [&](const Arrays& here, const Places& places) { return convert(here, like(here), places); });
}

base::Status AsyncEa::finish(api::Started started) {
  if (started.status.code() == MV_EINTR) pending_ = std::move(started.call);
  return std::move(started.status);
}

base::Status AsyncEa::get(base::Nanos timeout) {
  api::CallOptions options;
  options.timeout = timeout;
  options.keep_on_interrupt = true;
  return finish(table_->get({}, center(), options));
}

base::Status AsyncEa::average(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = check_shape(parameters); !status.ok()) return status;
  if (uses_parameters())
    if (auto status = settle(parameters); !status.ok()) return status;
  const auto resumed = [&](auto start) {
    if (pending_ == nullptr) return start();
    bool alive = false;
    base::Status status = node_.wait(pending_, base::kNever, &alive);
    if (!alive) pending_.reset();
    return status;
  };
  const auto count = [&] {
    ++step_;
    meter.steps += 1;
    meter.dense_bytes += bytes_of(parameters);
    return base::Status();
  };
  const auto fetch = [&] { return step_ % tau_ == 0 ? resumed([&] { return get(timeout); }) : base::Status(); };
  const auto move = [&] {
    if (step_ % tau_ != 0) return base::Status();
    if (auto status = move_to_center(parameters); !status.ok()) return status;
    meter.operations += 2;
    meter.payload_bytes += bytes_of(center_.arrays());
    return base::Status();
  };
  const auto add = [&] {
    if (step_ % tau_ != 0) return base::Status();
    return resumed([&] {
      const api::MutableData difference = center();
      api::CallOptions options;
      options.timeout = timeout;
      options.keep_on_interrupt = true;
      return finish(table_->add({}, {difference.values, difference.count, difference.dtype, difference.device}, options));
    });
  };
  return stages_.carry_out("mv_async_ea_average", {count, fetch, move, add});
}

base::Status AsyncEa::read(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = check_shape(parameters); !status.ok()) return status;
  if (pending_ != nullptr) return base::error(MV_ESTATE, "a signal interrupted mv_async_ea_average, which is still unfinished: repeat that call first");
  if (auto status = settle(parameters); !status.ok()) return status;
  api::CallOptions options;
  options.timeout = timeout;
  if (auto got = table_->get({}, center(), options); !got.status.ok()) return std::move(got.status);
  return take(parameters);
}

void AsyncEa::withdraw() {
  if (pending_ == nullptr) return;
  if (auto status = node_.cancel(pending_); !status.ok()) base::log_debug("distlearn: withdrew a call: {}", status.text());
  pending_.reset();
  stages_.forget();
}

}  // namespace mv::distlearn
