#pragma once
// What has become of a member of the cluster.

namespace mv::cluster {

enum class MemberState { kHere, kFinished, kLost };

}  // namespace mv::cluster
