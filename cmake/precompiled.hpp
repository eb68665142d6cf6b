// The headers that nearly every source includes, compiled once: see unity.cmake. Sources still include every header that they need; the
// preset `debug` compiles without this file.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/core.h>

#include "base/link.hpp"
#include "base/log.hpp"
#include "base/operation.hpp"
#include "base/result.hpp"
#include "wire/frame.hpp"
#include "wire/polyverso_generated.h"
