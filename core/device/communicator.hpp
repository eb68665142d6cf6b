#pragma once
// A plug-in's communicator, and the stream on which it reduces.

#include <functional>

#include "device/device.hpp"
#include "tensor/communicator.hpp"

namespace mv::device {

/// The name of the library by which the plug-in reduces between devices.
base::Result<std::string> communicates_by(const Device& device);
base::Result<tensor::Communicator::Id> make_communicator_id(const Device& device);
/// @param stream  the stream for the next all-reduce
base::Result<std::unique_ptr<tensor::Communicator>> communicate(const Device& device, std::function<mv_device_stream()> stream,
                                                                const tensor::Communicator::Id& id, int32_t ranks, int32_t rank);

}  // namespace mv::device
