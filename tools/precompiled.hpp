// The headers that most sources of the command include, compiled once: see cmake/unity.cmake.
#include <polyverso/polyverso.h>

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
