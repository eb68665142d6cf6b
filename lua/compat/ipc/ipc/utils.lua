--- Helpers of the trees that scripts use, too.

local sorted_keys = require("polyverso.arrays").sorted_keys

local utils = {}

--- Calls f with each leaf of nested tables, in the order of their keys. If f returns a value, it replaces the leaf.
---@param nested table
---@param f fun(leaf: any): any
function utils.walkTable(nested, f)
  for _, key in ipairs(sorted_keys(nested)) do
    local value = nested[key]
    if type(value) == "table" then
      utils.walkTable(value, f)
    else
      local replaced = f(value)
      if replaced ~= nil then nested[key] = replaced end
    end
  end
end

return utils
