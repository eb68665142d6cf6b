// Alone in its object file, so that the tests of capi/ can link another node.

#include "node/member_node.hpp"

namespace mv::node {

std::unique_ptr<Node> Node::make(const Settings& settings) { return std::make_unique<MemberNode>(settings); }

}  // namespace mv::node
