--- A tree of one node: what a script that can run on many does alone.

local walkTable = require("ipc.utils").walkTable

local function NullTree()
  local last
  return {
    nodeIndex = 1,
    numNodes = 1,
    walkTable = walkTable,
    --- The value; its contributors: 1, or 0 where a zero function says that this node is through.
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
