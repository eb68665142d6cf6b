#pragma once
// A thread-local object, constructed at its first use in a thread and destroyed at the thread's end. Unlike a
// thread_local with a destructor, it survives a lack of memory: if the destructor cannot be registered, the C library
// ends the process.

#include <pthread.h>

#include <new>

namespace mv::base {

/// One object for each T and Tag. Throws std::bad_alloc if the object can't be made or registered.
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
