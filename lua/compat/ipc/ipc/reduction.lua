--- All-reduce by a Lua function, the draining of nodes without further data, and scatter. Internal.

local reduce_manually = require("polyverso.group").reduce_manually
local capi = require("polyverso.capi")
local failures = require("polyverso.failures")
local native = require("polyverso.ipc")
local tensor = require("polyverso.tensor")
local values = require("ipc.values")
local walkTable = require("ipc.utils").walkTable

local reduction = {}

-- Reduces the values of another node into the leaves.
local function reduce_into(leaves, theirs, reduce)
  for i, leaf in ipairs(leaves) do leaf.set(reduce(leaf.get(), theirs[i]())) end
end

-- Runs a custom reduction to its end; returns the number of contributors.
local function run(joined, holder, leaves, reduce, draining)
  local places, theirs = {}, {}
  for i, leaf in ipairs(leaves) do places[i], theirs[i] = leaf.place() end
  local function once() reduce_into(leaves, theirs, reduce) end
  return reduce_manually(joined:group(), values.cells(leaves, holder), places, once, {draining = draining})
end

--- The value, reduced with those of the other nodes, and the number of contributors.
function reduction.contribute(joined, value, reduce)
  local holder = {value}
  local leaves = values.leaves(holder)
  local contributors = run(joined, holder, leaves, reduce, false)
  values.settle(holder, leaves)
  return holder[1], contributors
end

-- Replaces each leaf by zero(leaf, number). After an error, the nodes that wait for this one in an operation of `joined` are told.
local function zeroed(joined, holder, zero)
  local i = 0
  local ended, failure = pcall(walkTable, holder, function(leaf)
    i = i + 1
    return zero(leaf, i)
  end)
  if ended then return end
  if joined then capi.mv_group_abort(joined:group(), failures.one_line(failure)) end
  error(failure, 0)
end

local function take_part(joined, holder, shape, reduce)
  local leaves = values.leaves(holder)
  if shape.reduction == 0 then
    run(joined, holder, leaves, reduce, true)
  else
    capi.mv_allreduce_many(joined:group(), values.cells(leaves), shape.reduction, capi.MV_DRAINING)
  end
  values.settle(holder, leaves)
end

--- Takes part in the operations of the other nodes until all nodes drain. Returns the value.
function reduction.drain(joined, value, reduce, zero)
  local holder = {value}
  while true do
    local shape = capi.mv_allreduce_drain(joined:group())
    if shape.finished == 1 then break end
    if holder[1] == nil then holder[1] = values.of_shape(shape.arrays) end
    if values.fit(values.leaves(holder), shape.arrays) then
      zeroed(joined, holder, zero)
      take_part(joined, holder, shape, reduce)
    else
      local other = {values.of_shape(shape.arrays)}
      zeroed(joined, other, zero)
      take_part(joined, other, shape, reduce)
    end
  end
  zeroed(nil, holder, zero) -- the last round: no node contributes
  return holder[1]
end

-- Broadcasts a value that not all nodes have a place for, or why it can't be sent: first the number of bytes, then the bytes.
local function scatter_bytes(joined, value)
  local can_be_sent, bytes = true, ""
  if joined:info().rank == 0 then can_be_sent, bytes = pcall(native.encode, value) end
  if not can_be_sent then bytes = failures.one_line(bytes) end
  local length = tensor.full({2}, #bytes, "f64")
  length:set(1, can_be_sent and 1 or 0)
  capi.mv_broadcast(joined:group(), length, 0)
  local cells = tensor.zeros({length:get(0)}, "u8")
  for i = 1, #bytes do cells:set(i - 1, bytes:byte(i)) end
  capi.mv_broadcast(joined:group(), cells, 0)
  local got = {}
  for i = 1, length:get(0) do got[i] = string.char(cells:get(i - 1)) end
  if length:get(1) == 0 then error("scatter: the value of the first node can't be sent: " .. table.concat(got), 0) end
  return native.decode(table.concat(got))
end

-- Whether the value of every node is not nil and consists of numbers and tensors.
local function all_plain(joined, holder)
  local plain = tensor.full({1}, holder[1] ~= nil and values.are_plain(holder) and 1 or 0, "f64")
  capi.mv_allreduce(joined:group(), plain, capi.MV_REDUCE_MIN)
  return plain:get(0) == 1
end

-- Copies the first node's value into this node's, if both have the same form.
local function put(got, holder)
  if holder[1] == nil or not values.are_plain(holder) or not values.are_plain({got}) then return got end
  local to, from = values.leaves(holder), values.leaves({got})
  if not values.alike(to, from) then return got end
  for i, leaf in ipairs(to) do leaf.set(from[i].get()) end
  values.settle(holder, to)
  return holder[1]
end

--- The first node's value, in place of this node's; nodes may have none.
function reduction.scatter(joined, value)
  local holder = {value}
  if not all_plain(joined, holder) then return put(scatter_bytes(joined, value), holder) end
  local leaves = values.leaves(holder)
  capi.mv_broadcast_many(joined:group(), values.cells(leaves), 0)
  values.settle(holder, leaves)
  return holder[1]
end

return reduction
