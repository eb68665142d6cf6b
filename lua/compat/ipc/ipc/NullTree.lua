--- A tree of one node, for a script that can run on many nodes and runs alone.

local walkTable = require("ipc.utils").walkTable

---@return ipc.Tree
local function NullTree()
  local last
  return {
    nodeIndex = 1,
    numNodes = 1,
    walkTable = walkTable,
    --- Returns the value and the number of contributors: 1, or 0 with a zero function, by which the node drains.
    allReduce = function(value, _, zero)
      if value == nil then value = last else last = value end
      if not zero then return value, 1 end
      local i = 0
      local held = {value}
      walkTable(held, function(leaf)
        i = i + 1
        return zero(leaf, i)
      end)
      return held[1], 0
    end,
    scatter = function(value) return value end,
    netStats = function() end,
  }
end

return NullTree
