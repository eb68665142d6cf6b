#pragma once
// A custom reduction of arrays in the memory of devices.

#include "api/call/options.hpp"
#include "api/group/group.hpp"

namespace mv::api {

/// Group::custom() of arrays that may be on devices. The group exchanges copies on the host; the caller combines arrays
/// on the devices: those that next() returns are on the devices of the caller's.
base::Result<CustomReductionRef> reduce_on_devices(Group& group, collective::Operation operation, const CallOptions& options, const FindDevice& find);

}  // namespace mv::api
