/// Polyverso in C++20: the functions of polyverso.h with handles that close themselves, spans and exceptions. Only headers; link with
/// libpolyverso. docs/cpp.md has the first program.
///
///   polyverso::Node node;                                        // as `polyverso run` sets it
///   polyverso::Table weights(node, "size=100 name=weights");
///   weights.add(gradients);                                      // a vector, an array, a span of float
///
///  - Each function does what the C function of its name does; polyverso.h documents it. Nothing is added to the protocol.
///  - Errors are polyverso::Error, with a class for each family, the status and mv_last_error() as what().
///  - Objects that own something can be moved, not copied. Destructors neither throw nor lose acknowledged work: close() reports errors.
///  - Any thread may use an object, as in C; moving and destroying it must not overlap with its use.
///  - The ..._async functions return a Request. Its buffers must live as long as it does.
///  - C++20 is needed for std::span and concepts, which the library itself is compiled with too. The C functions work from every version.
#ifndef POLYVERSO_POLYVERSO_HPP
#define POLYVERSO_POLYVERSO_HPP

#if __cplusplus < 202002L
#error "polyverso.hpp needs C++20: -std=c++20, or in CMake target_compile_features(TARGET PRIVATE cxx_std_20)"
#endif

#include <polyverso/cpp/base.hpp>
#include <polyverso/cpp/node.hpp>
#include <polyverso/cpp/table.hpp>
#include <polyverso/cpp/tensor.hpp>
#include <polyverso/cpp/kvstore.hpp>
#include <polyverso/cpp/group.hpp>
#include <polyverso/cpp/gossip.hpp>
#include <polyverso/cpp/distlearn.hpp>

#endif
