--- Groups: workers that reduce arrays together. docs/groups.md is the guide.
--
--     local group = require("polyverso.group").open(node)      -- all workers
--     group:allreduce(gradient)                                 -- its sum over all ranks, in place
--     group:allreduce(loss, {op = "avg"})
--     group:broadcast(weights, {root = 0})
--     local losses = group:allgather(loss)                      -- of shape {ranks, ...}
--
-- Arrays are polyverso.tensor's tensors, Torch's (or its stand-in's) tensors, and FFI memory. They are changed in
-- place; only a Torch tensor that is not contiguous is copied. All ranks make the same calls in the same order. `how`
-- is nil or a table:
--   op = "sum"            or "prod", "min", "max", "avg"
--   root = 0              the rank that receives the result of reduce(), or whose array broadcast() sends
--   draining = true       this rank only takes part: it does not count as a contributor
--   timeout = seconds     instead of the node's default

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local failures = require("polyverso.failures")
local foreign = require("polyverso.foreign")
local names = require("polyverso.names")
local objects = require("polyverso.objects")
local tensor = require("polyverso.tensor")
local values = require("polyverso.values")

local unpack = unpack or table.unpack

local OPERATIONS = {
  sum = capi.MV_REDUCE_SUM, prod = capi.MV_REDUCE_PROD, min = capi.MV_REDUCE_MIN, max = capi.MV_REDUCE_MAX, avg = capi.MV_REDUCE_AVG,
}
local NAMES = {}
for name, code in pairs(OPERATIONS) do NAMES[code] = name end

local KNOWN = values.set_of("op, root, draining, timeout")

local function code(how)
  local found = OPERATIONS[how.op or "sum"]
  if not found then
    local similar = names.did_you_mean(how.op, {"sum", "prod", "min", "max", "avg"})
    capi.raise(capi.MV_EINVAL, ('op is "%s": expected one of sum, prod, min, max, avg%s'):format(tostring(how.op), similar))
  end
  return found
end

local function flags(how) return how.draining and capi.MV_DRAINING or 0 end

-- The ranks compare the shapes of the tensors.
local function options(how, tensors)
  return values.call_options(0, how.timeout, tensors and not how.draining and arrays.label(tensors) or nil)
end

local Group = {}
Group.__index = Group

local function new(handle, life)
  local info = capi.mv_group_describe(handle)
  return setmetatable({handle = handle, life = life, rank = info.rank, size = info.ranks, transport = info.transport}, Group)
end

--- A table of rank, ranks, hosts, transport, bytes_sent, bytes_received, operations, and why it is broken, if it is.
function Group:info() return capi.mv_group_describe(self.handle) end

--- The worker ids of the group, in the order of ranks.
function Group:members()
  local ids = {n = self.size}
  capi.mv_group_members(self.handle, ids)
  ids.n = nil
  return ids
end

-- Runs call(tensors, how) on one array or several, which it changes in place; returns the call's result.
local function in_place(found, given, how, call)
  local copies = {}
  how = values.checked(how, KNOWN)
  local result = call(found(given, copies), how)
  arrays.copy_back(copies)
  return result
end

--- array = the reduction of all ranks' arrays, with the same bits on all ranks. Returns the array.
function Group:allreduce(array, how)
  in_place(arrays.one, array, how, function(one, said) capi.mv_allreduce(self.handle, one, code(said), options(said, {one})) end)
  return array
end

--- Reduces several arrays in one operation; returns the number of contributors.
function Group:allreduce_many(list, how)
  return in_place(arrays.tensors, list, how, function(all, said)
    return capi.mv_allreduce_many(self.handle, all, code(said), flags(said), options(said, all))
  end)
end

--- Takes part in the all-reduces of the other ranks, with zeros, until all ranks have called it.
function Group:allreduce_zeros(how) capi.mv_allreduce_zeros(self.handle, options(values.checked(how, KNOWN))) end

--- Like allreduce(), but only the root gets the result; the arrays of the other ranks stay unchanged.
function Group:reduce(array, how)
  in_place(arrays.one, array, how, function(one, said) capi.mv_reduce(self.handle, one, code(said), said.root or 0, options(said)) end)
  return array
end

--- array = the root's array, on all ranks. Returns it.
function Group:broadcast(array, how)
  in_place(arrays.one, array, how, function(one, said) capi.mv_broadcast(self.handle, one, said.root or 0, options(said)) end)
  return array
end

function Group:broadcast_many(list, how)
  in_place(arrays.tensors, list, how, function(all, said) capi.mv_broadcast_many(self.handle, all, said.root or 0, options(said)) end)
end

--- The arrays of all ranks, in the order of ranks; all have the same shape. Returns a tensor of shape {ranks, ...},
-- which is a Torch tensor if `array` is one.
function Group:allgather(array, how)
  local mine = arrays.one(array)
  local shape = mine:shape()
  table.insert(shape, 1, 1)
  local own = mine:reshape(shape)
  shape[1] = self.size
  local made = foreign.is_tensor(array) and array:clone():resize(foreign.torch().LongStorage(shape))
  local all = made and arrays.one(made) or tensor.zeros(shape, mine:dtype())
  all:slice(self.rank, self.rank + 1):assign(own)
  capi.mv_allgather(self.handle, all, options(values.checked(how, KNOWN), {mine}))
  return made or all
end

--- Like allreduce(), but each rank gets only its own part of the result: an equal number of rows for each rank. Returns
-- a view of these rows in `array`; its other rows stay unchanged.
function Group:reduce_scatter(array, how)
  local all = arrays.one(array):shape()[1]
  local rows = math.floor(all / self.size)
  if rows * self.size ~= all then capi.raise(capi.MV_ESHAPE, ("%d rows can't be divided evenly among %d ranks"):format(all, self.size)) end
  local first = self.rank * rows
  in_place(arrays.one, array, how, function(one, said) capi.mv_reduce_scatter(self.handle, one, code(said), options(said, {one})) end)
  if foreign.is_tensor(array) then return array:narrow(1, first + 1, rows) end
  return arrays.one(array):slice(first, first + rows)
end

-- ------------------------------------------------------------------ custom reductions

local function steps(custom, theirs, reduce)
  while capi.mv_custom_next(custom, theirs) == 1 do
    local reduced, failure = pcall(reduce)
    if not reduced then
      failures.report(failure)
      pcall(capi.mv_custom_done, custom, capi.MV_ECANCELED)
      pcall(capi.mv_custom_next, custom, theirs) -- waits for the failed operation, so that it is not withdrawn
      capi.raise_again(failure)
    end
    capi.mv_custom_done(custom, capi.MV_OK)
  end
end

-- All-reduces tensors with a function: reduce() combines `theirs` into `mine`, once for each set of values that
-- arrives. Returns the number of contributors. ipc.Tree uses it, too.
-- @param labelled  the tensors whose shapes the ranks compare; nil: none
local function reduce_manually(handle, mine, theirs, reduce, how, labelled)
  local custom = capi.mv_custom_begin(handle, mine, flags(how), options(how, labelled))
  local ended, failure = pcall(steps, custom, theirs, reduce)
  if not ended then
    pcall(capi.mv_custom_end, custom)
    capi.raise_again(failure)
  end
  return capi.mv_custom_end(custom)
end

-- The array that a reducing function gets (a contiguous Torch tensor, otherwise a polyverso tensor), and its polyverso
-- tensor.
local function seen(leaf)
  if not foreign.is_tensor(leaf.value) then return leaf.tensor, leaf.tensor end
  local whole = leaf.value:contiguous()
  return whole, arrays.one(whole)
end

local function put(mine, value)
  if rawequal(mine, value) then return end
  if tensor.is_tensor(mine) then mine:assign(value) else mine:copy(value) end
end

--- values, an array or a list of arrays = all ranks' values, reduced two at a time by reduce(mine, theirs). This
-- function gets an array or a list, like `values`; it changes `mine` in place or returns the result. It gets FFI memory
-- as a tensor. An error in it fails the operation on all ranks. Returns the number of contributors.
function Group:allreduce_custom(given, reduce, how)
  values.check_callable("group:allreduce_custom", "reduce", reduce)
  how = values.checked(how, KNOWN)
  local is_one = arrays.tensor_of(given) ~= nil
  local mine, places, theirs, their_places = {}, {}, {}, {}
  local leaves = arrays.leaves(given)
  for i, leaf in ipairs(leaves) do
    mine[i], places[i] = seen(leaf)
    theirs[i] = tensor.is_tensor(mine[i]) and mine[i]:copy() or mine[i]:clone()
    their_places[i] = arrays.one(theirs[i])
  end
  local contributors = reduce_manually(self.handle, places, their_places, function()
    local made = {unpack(mine)} -- a copy, because the function may put new arrays into its list
    local result
    if is_one then result = reduce(made[1], theirs[1]) else result = reduce(made, {unpack(theirs)}) end
    if result ~= nil then made = is_one and {result} or result end
    for i, own in ipairs(mine) do put(own, made[i]) end
  end, how, places)
  for i, leaf in ipairs(leaves) do
    if foreign.is_tensor(leaf.value) and mine[i] ~= leaf.value then leaf.value:copy(mine[i]) end
  end
  return contributors
end

-- ------------------------------------------------------------------ uneven endings

--- For a rank without further data: waits for the next all-reduce of the other ranks, in which this rank must then take
-- part with draining = true. Returns a table of op (nil if they reduce by a function of their own) and arrays, each
-- with count and dtype; or nil once all ranks drain.
function Group:drain(how)
  local told = capi.mv_allreduce_drain(self.handle, options(values.checked(how, KNOWN)))
  if told.finished == 1 then return nil end
  for _, array in ipairs(told.arrays) do array.dtype = tensor.name_of(array.dtype) end
  return {op = NAMES[told.reduction], arrays = told.arrays}
end

function Group:barrier(how) capi.mv_group_barrier(self.handle, options(values.checked(how, KNOWN))) end

--- After a rank is lost: makes a new group of the survivors, which must all call it.
function Group:shrink(how) return new(capi.mv_group_shrink(self.handle, options(values.checked(how, KNOWN))), self.life) end

--- Closes the group.
function Group:close()
  local handle, has_ended = self.handle, objects.end_of(self)
  self.handle, self.ended = 0, self.ended or "after close()"
  if handle ~= 0 and not has_ended then capi.mv_group_close(handle) end
end

function Group:described() return ("the group of rank %d of %d"):format(self.rank, self.size) end

--- <polyverso.Group rank 0 of 4, shm>
function Group:__tostring() return objects.text(self, "Group", ("rank %d of %d"):format(self.rank, self.size), self.transport) end

objects.finish("group", Group, {close = true})

local function handle_of(node) return values.node_handle("group.open", node) end

return {
  --- Opens a group of `workers`, a table of worker ids; nil: all of the node's cluster. All members must call this.
  open = function(node, workers) return new(capi.mv_group_open(handle_of(node), workers), objects.life_of(handle_of(node))) end,
  --- Opens a group of the workers on this machine.
  of_host = function(node) return new(capi.mv_group_open_host(handle_of(node)), objects.life_of(handle_of(node))) end,
  reduce_manually = reduce_manually,
}
