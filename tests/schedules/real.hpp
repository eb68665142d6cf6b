#pragma once
// The original functions that intercept.cpp replaces.

#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace mv::schedules::real {

void futex(std::atomic<uint32_t>* word, int operation, uint32_t value);
int poll_now(pollfd* polled, nfds_t count);
int create_thread(pthread_t* made, const pthread_attr_t* attributes, void* (*start)(void*), void* argument);

}  // namespace mv::schedules::real
