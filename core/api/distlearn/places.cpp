#include "api/distlearn/places.hpp"

#include <algorithm>
#include <set>

namespace mv::distlearn {

namespace {

/// on_device(i, device) for each array on a device, else on_host(i).
template <typename OnDevice, typename OnHost>
base::Status for_each_array(const Places& places, const OnDevice& on_device, const OnHost& on_host) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == nullptr) {
      on_host(i);
    } else if (auto status = on_device(i, *places[i]); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status copy(std::byte* to, tensor::Device* to_place, const std::byte* from, tensor::Device* from_place, size_t bytes) {
  if (bytes == 0) return {};
  if (to_place != nullptr && from_place != nullptr) return to_place->copy_from(*from_place, to, from, bytes);
  if (to_place != nullptr) return to_place->from_host(to, from, bytes);
  if (from_place != nullptr) return from_place->to_host(to, from, bytes);
  std::copy_n(from, bytes, to);
  return {};
}

}  // namespace

base::Result<Places> places_of(const Arrays& arrays, const api::FindDevice& find) {
  Places places(arrays.size());
  for (size_t i = 0; i < arrays.size() && find; ++i) {
    if (arrays[i].count == 0) continue;
    const auto found = find(arrays[i].data);
    if (!found.ok()) return found.status();
    places[i] = found.value();
  }
  return places;
}

tensor::Device* common_device(const Arrays& arrays, const Places& places) {
  tensor::Device* found = nullptr;
  for (size_t i = 0; i < places.size(); ++i) {
    if (arrays[i].count == 0) continue;
    if (places[i] == nullptr || (found != nullptr && found != places[i])) return nullptr;
    found = places[i];
  }
  return found;
}

base::Status wait_for(const Places& places) {
  for (tensor::Device* const device : std::set<tensor::Device*>(places.begin(), places.end()))
    if (device != nullptr)
      if (auto status = device->wait(); !status.ok()) return status;
  return {};
}

base::Status end_call(const Places& places, base::Status status) {
  const base::Status waited = status.code() == MV_EINTR ? base::Status() : wait_for(places);
  return status.ok() ? waited : status;
}

base::Status add(const Arrays& sums, const Arrays& terms, const Places& places) {
  return for_each_array(
      places, [&](size_t i, tensor::Device& device) { return device.add(sums[i].dtype, sums[i].data, terms[i].data, sums[i].count); },
      [&](size_t i) { for_each_element({sums[i]}, []<typename T>(T& sum, T& term) { sum += term; }, Arrays{terms[i]}); });
}

base::Status convert(const Arrays& to, const Arrays& from, const Places& places) {
  return for_each_array(
      places, [&](size_t i, tensor::Device& device) { return device.cast(to[i].dtype, to[i].data, from[i].dtype, from[i].data, to[i].count); },
      [&](size_t i) {
        if (from[i].dtype == tensor::storage_dtype(from[i].dtype))
          for_each_element({to[i]}, []<typename T>(T& value, T& other) { value = other; }, Arrays{from[i]});
        else
          for_each_element({from[i]}, []<typename T>(T& value, T& other) { other = value; }, Arrays{to[i]});
      });
}

base::Status elastic(const Arrays& values, const Arrays& center, const Arrays& difference, double alpha, const Places& places) {
  const auto move = [alpha]<typename T>(T& value, T& centre, T& apart) {
    apart = (value - centre) * static_cast<T>(alpha);
    value -= apart;
  };
  return for_each_array(
      places,
      [&](size_t i, tensor::Device& device) {
        return device.elastic(values[i].dtype, values[i].data, center[i].data, difference[i].data, values[i].count, alpha);
      },
      [&](size_t i) { for_each_element({values[i]}, move, Arrays{center[i]}, Arrays{difference[i]}); });
}

base::Status outer_step(const OuterArrays& arrays, math::Outer what, const math::OuterSettings& settings) {
  const auto& [values, outer, velocity, moved, places] = arrays;
  return for_each_array(
      places,
      [&](size_t i, tensor::Device& device) {
        return device.outer({values[i].dtype, values[i].data, outer[i].data, velocity[i].data, moved[i].data, values[i].count}, what, settings);
      },
      [&](size_t i) {
        // By value: the settings stay in registers. Through a reference, any element might be one of them.
        const auto step = [what, settings]<typename T>(T& value, T& own, T& speed, T& way) { math::OuterStep<T>(what, settings)(value, own, speed, way); };
        for_each_element({values[i]}, step, Arrays{outer[i]}, Arrays{velocity[i]}, Arrays{moved[i]});
      });
}

OuterArrays cut(const OuterArrays& arrays, uint64_t first, uint64_t count) {
  OuterArrays parts{cut(arrays.values, first, count), cut(arrays.outer, first, count), cut(arrays.velocity, first, count), cut(arrays.moved, first, count), {}};
  uint64_t begin = 0;
  for (size_t i = 0; i < arrays.places.size(); begin += arrays.values[i++].count)
    if (std::max(begin, first) < std::min(begin + arrays.values[i].count, first + count)) parts.places.push_back(arrays.places[i]);
  return parts;
}

base::Result<Buffers::Memory> Buffers::make(uint64_t bytes, tensor::Device* place) {
  if (place == nullptr) return Memory{std::vector<std::byte>(bytes), nullptr};
  auto made = place->allocate(bytes, tensor::Allocator::Content::kZeros);
  if (made.status().code() == MV_ENOMEM) throw NoRoom();
  if (!made.ok()) return made.status();
  return Memory{{}, std::move(made).value()};
}

base::Status Buffers::settle(const Arrays& like, const Places& places) {
  if (!empty()) {
    for (size_t i = 0; i < places.size(); ++i)
      if (places[i] != places_[i])
        if (auto status = move(i, places[i]); !status.ok()) return status;
    return {};
  }
  Buffers made;
  for (size_t i = 0; i < like.size(); ++i) {
    const mv_dtype dtype = tensor::storage_dtype(like[i].dtype);
    auto memory = make(like[i].count * tensor::dtype_bytes(dtype), places[i]);
    if (!memory.ok()) return memory.status();
    made.memory_.push_back(std::move(memory).value());
    Memory& own = made.memory_.back();
    made.arrays_.push_back({own.there != nullptr ? own.there->data() : own.here.data(), like[i].count, dtype});
  }
  made.places_ = places;
  *this = std::move(made);
  return {};
}

base::Status Buffers::move(size_t i, tensor::Device* place) {
  auto memory = make(arrays_[i].bytes(), place);
  if (!memory.ok()) return memory.status();
  Memory& own = memory.value();
  std::byte* const to = own.there != nullptr ? own.there->data() : own.here.data();
  if (auto status = copy(to, place, arrays_[i].data, places_[i], arrays_[i].bytes()); !status.ok()) return status;
  arrays_[i].data = to;
  memory_[i] = std::move(own);
  places_[i] = place;
  return {};
}

base::Status Buffers::fill_zero() {
  return for_each_array(
      places_,
      [&](size_t i, tensor::Device& device) {
        constexpr std::byte kZero[sizeof(double)] = {};
        return device.fill(matrix(i, 1, arrays_[i].count), kZero);
      },
      [&](size_t i) { std::fill(memory_[i].here.begin(), memory_[i].here.end(), std::byte{0}); });
}

tensor::Tensor Buffers::matrix(size_t i, size_t rows, size_t cols) const {
  const tensor::Shape shape{{static_cast<int64_t>(rows), static_cast<int64_t>(cols)}, 2};
  return {arrays_[i].dtype, shape, memory_[i].there, arrays_[i].data, {}, false};
}

std::vector<float> Buffers::floats() const {
  std::vector<float> all(elements_of(arrays_));
  auto* to = reinterpret_cast<std::byte*>(all.data());
  for (size_t i = 0; i < arrays_.size(); to += arrays_[i++].bytes()) static_cast<void>(copy(to, nullptr, arrays_[i].data, places_[i], arrays_[i].bytes()));
  return all;
}

}  // namespace mv::distlearn
