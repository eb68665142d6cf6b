--- All-reduce with a function of Lua's, and what a node does that has nothing to contribute any more. Internal.

local by_hand = require("polyverso.group").by_hand
local capi = require("polyverso.capi")
local native = require("polyverso.ipc")
local tensor = require("polyverso.tensor")
local values = require("ipc.values")
local walkTable = require("ipc.utils").walkTable

local reduction = {}

-- Reduces the values of another node into the leaves.
local function reduce_into(leaves, theirs, reduce)
  for i, leaf in ipairs(leaves) do leaf.set(reduce(leaf.get(), theirs[i]())) end
end

-- Runs a custom reduction to its end; returns the contributors.
local function run(joined, leaves, reduce, draining)
  local places, theirs = {}, {}
  for i, leaf in ipairs(leaves) do places[i], theirs[i] = leaf.place() end
  return by_hand(joined:group(), values.cells(leaves), places, function() reduce_into(leaves, theirs, reduce) end, {draining = draining})
end

--- The value, reduced with the others', and how many contributed.
function reduction.contribute(joined, value, reduce)
  local holder = {value}
  local leaves = values.leaves(holder)
  local contributors = run(joined, leaves, reduce, false)
  values.settle(holder, leaves)
  return holder[1], contributors
end

-- What zero(leaf, number) makes of each leaf takes its place.
local function zeroed(holder, zero)
  local i = 0
  walkTable(holder, function(leaf)
    i = i + 1
    return zero(leaf, i)
  end)
end

-- A value of the others' shape, for a node that has none.
local function made_for(shape, zero)
  return values.of_shape(shape, function(i) return (pcall(zero, 0, i)) end)
end

local function take_part(joined, holder, shape, reduce)
  local leaves = values.leaves(holder)
  if shape.reduction == 0 then
    run(joined, leaves, reduce, true)
  else
    capi.mv_allreduce_many(joined:group(), values.cells(leaves), shape.reduction, capi.MV_DRAINING)
  end
  values.settle(holder, leaves)
end

--- Takes part until all nodes are through. Returns the value.
function reduction.drain(joined, value, reduce, zero)
  local holder = {value}
  while true do
    local shape = capi.mv_allreduce_drain(joined:group())
    if shape.finished == 1 then break end
    if holder[1] == nil then holder[1] = made_for(shape.arrays, zero) end
    if values.fit(values.leaves(holder), shape.arrays) then
      zeroed(holder, zero)
      take_part(joined, holder, shape, reduce)
    else
      local other = {made_for(shape.arrays, zero)}
      zeroed(other, zero)
      take_part(joined, other, shape, reduce)
    end
  end
  zeroed(holder, zero) -- the last round: nobody contributes
  return holder[1]
end

-- Anything that is no number and no tensor goes as bytes, behind their number.
local function scatter_bytes(joined, value)
  local bytes = native.encode(value)
  local length = tensor.full({1}, #bytes, "f64")
  capi.mv_broadcast(joined:group(), length, 0)
  local cells = tensor.zeros({length:get(0)}, "u8")
  if length:get(0) == #bytes then
    for i = 1, #bytes do cells:set(i - 1, bytes:byte(i)) end
  end
  capi.mv_broadcast(joined:group(), cells, 0)
  local got = {}
  for i = 1, length:get(0) do got[i] = string.char(cells:get(i - 1)) end
  return native.decode(table.concat(got))
end

--- The first node's value, in the places of this one's.
function reduction.scatter(joined, value)
  local holder = {value}
  if not values.are_plain(holder) then return scatter_bytes(joined, value) end
  local leaves = values.leaves(holder)
  capi.mv_broadcast_many(joined:group(), values.cells(leaves), 0)
  values.settle(holder, leaves)
  return holder[1]
end

return reduction
