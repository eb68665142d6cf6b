// Updater callbacks: the store's callback calls the user's; or manual, for languages whose functions must not be
// called from C.

#include <polyverso/kvstore.h>

#include <fmt/core.h>

#include <exception>
#include <utility>

#include "boundary.hpp"
#include "callbacks.hpp"
#include "outcome.hpp"
#include "tensor_calls.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

using kvstore::Updates;

/// A handle that is open as long as a callback may use it.
class LentTensor {
 public:
  LentTensor(State& state, const Tensor& tensor) : handle_(open_tensor(state, tensor)) {}
  LentTensor(const LentTensor&) = delete;
  LentTensor& operator=(const LentTensor&) = delete;
  ~LentTensor() { static_cast<void>(mv_tensor_free(handle_)); }  // the callback may already have freed it
  mv_tensor handle() const { return handle_; }

 private:
  const mv_tensor handle_;
};

/// The current value of a lent tensor, which differs if a row-sparse tensor received other rows. If the handle was
/// closed, the tensor as it was lent.
Tensor returned(State& state, mv_tensor handle, const Tensor& lent) {
  auto pin = find_tensor(state, "updater", handle);
  return pin.ok() ? *pin.value() : lent;
}

base::Status run_updater(State& state, kv_updater updater, void* user, const std::string& key, const Tensor& merged, Tensor& stored) {
  const LentTensor given(state, merged), changed(state, stored);
  try {
    const base::Status outcome = check_outcome("updater", updater(user, key.c_str(), given.handle(), changed.handle()));
    stored = returned(state, changed.handle(), stored);
    return outcome;
  } catch (const std::exception& thrown) {
    return base::error(MV_EINVAL, "the updater threw: {}", thrown.what());
  }
}

base::Status set_updater(State& state, kv_store handle, kv_updater updater, void* user) {
  auto pin = find_store(state, "kv_set_updater", handle);
  if (!pin.ok()) return pin.status();
  const auto store = pin.value()->store;
  if (updater == nullptr) return store->remove_updater();
  Updates::Updater run;
  if (updater != KV_UPDATER_MANUAL)
    run = [&state, updater, user](const std::string& key, const Tensor& merged, Tensor& stored) {
      return run_updater(state, updater, user, key, merged, stored);
    };
  const auto callbacks = Callbacks::of_this_thread(state);
  if (auto status = store->set_updater(callbacks, std::move(run)); !status.ok()) return status;
  callbacks->add(store);
  return {};
}

base::Status next_update(State& state, kv_store handle, mv_tensor* merged, mv_tensor* stored, char* text, uint64_t capacity, uint64_t* length) {
  if (auto status = check_text_out("kv_next_update", text, capacity, length); !status.ok()) return status;
  if (merged == nullptr || stored == nullptr) return base::error(MV_EINVAL, "kv_next_update: merged or stored is NULL");
  auto pin = find_store(state, "kv_next_update", handle);
  if (!pin.ok()) return pin.status();
  StoreEntry& entry = *pin.value();
  const auto next = entry.store->updates().next();
  if (!next.ok()) return named("kv_next_update", next.status());
  if (!next.value()) {
    *merged = *stored = 0;
    put_text("", text, capacity, length);
    return {};
  }
  if (entry.manual == nullptr)
    entry.manual = std::make_shared<ManualUpdate>(ManualUpdate{open_tensor(state, next.value()->merged), open_tensor(state, next.value()->stored)});
  *merged = entry.manual->merged;
  *stored = entry.manual->stored;
  put_text(next.value()->key, text, capacity, length);
  return {};
}

base::Status update_done(State& state, kv_store handle, mv_status outcome) {
  auto pin = find_store(state, "kv_update_done", handle);
  if (!pin.ok()) return pin.status();
  StoreEntry& entry = *pin.value();
  const auto take_back = [&](Tensor& stored) {
    if (entry.manual != nullptr) stored = returned(state, entry.manual->stored, stored);
  };
  if (auto status = entry.store->updates().done(check_outcome("updater", outcome), take_back); !status.ok()) return named("kv_update_done", status);
  if (const auto done = std::exchange(entry.manual, nullptr)) {
    static_cast<void>(mv_tensor_free(done->merged));
    static_cast<void>(mv_tensor_free(done->stored));
  }
  return {};
}

}  // namespace
}  // namespace mv::capi

using mv::capi::State;

mv_status kv_set_updater(kv_store store, kv_updater updater, void* user) {
  return mv::capi::boundary("kv_set_updater", [&](State& state) -> mv::base::Status {
    return mv::capi::named("kv_set_updater", mv::capi::set_updater(state, store, updater, user));
  });
}
mv_status kv_next_update(kv_store store, mv_tensor* merged, mv_tensor* stored, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::boundary("kv_next_update",
                         [&](State& state) { return mv::capi::next_update(state, store, merged, stored, text, capacity, length); });
}
mv_status kv_update_done(kv_store store, mv_status outcome) {
  return mv::capi::boundary("kv_update_done", [&](State& state) { return mv::capi::update_done(state, store, outcome); });
}
