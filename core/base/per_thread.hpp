#pragma once
// An object for each thread that asks for one, made at its first use and destroyed at the thread's end. A thread_local with a destructor
// is no choice here: where there is no memory to register the destructor, the C library ends the process.

#include <pthread.h>

#include <new>

namespace mv::base {

/// One for each T and Tag. Throws std::bad_alloc where the object can't be made or kept.
template <typename T, typename Tag = T>
T& per_thread() {
  static thread_local T* here = nullptr;  // trivial: nothing is registered
  if (here != nullptr) return *here;
  static const pthread_key_t kKey = [] {
    pthread_key_t made;
    if (pthread_key_create(&made, [](void* object) {
          here = nullptr;
          delete static_cast<T*>(object);
        }) != 0)
      throw std::bad_alloc();
    return made;
  }();
  T* const made = new T();
  if (pthread_setspecific(kKey, made) != 0) {
    delete made;
    throw std::bad_alloc();
  }
  return *(here = made);
}

}  // namespace mv::base
