// Alone in its object file, so that the tests of capi/ can link another node.

#include "api/node/member_node.hpp"

namespace mv::api {

std::unique_ptr<Node> Node::make(const runtime::Settings& settings) { return std::make_unique<MemberNode>(settings); }

}  // namespace mv::api
