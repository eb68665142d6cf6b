--- Groups: workers that reduce arrays together. docs/groups.md is the guide.
--
--     local group = require("polyverso.group").open(node)      -- all workers
--     group:allreduce(gradient)                                 -- its sum over all ranks, in place
--     group:allreduce(loss, {op = "avg"})
--     group:broadcast(weights, {root = 0})
--     local losses = group:allgather(loss)                      -- of shape {ranks, ...}
--     group:send(activations, 1)                                -- which calls group:recv(activations, 0)
--
-- Arrays are polyverso.tensor's tensors, Torch's (or its stand-in's) tensors, and FFI memory. They are changed in
-- place; only a Torch tensor that is not contiguous is copied. All ranks make the same calls in the same order. `how`
-- is nil or a table:
--   op = "sum"            or "prod", "min", "max", "avg"
--   root = 0              the rank that receives the result of reduce() or gather(), or whose array broadcast() or
--                         scatter() sends
--   tag = 0               send(), recv(): any integer; recv() takes only arrays with its own tag
--   async = true          returns a request at once. Its wait() returns the result. Until then the arrays must not be
--                         used, and a Torch tensor that is not contiguous is unchanged
--   draining = true       this rank only takes part: it does not count as a contributor
--   timeout = seconds     instead of the node's default

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local failures = require("polyverso.failures")
local foreign = require("polyverso.foreign")
local names = require("polyverso.names")
local objects = require("polyverso.objects")
local Request = require("polyverso.request")
local tensor = require("polyverso.tensor")
local values = require("polyverso.values")

local unpack = unpack or table.unpack

local OPERATIONS = {
  sum = capi.MV_REDUCE_SUM, prod = capi.MV_REDUCE_PROD, min = capi.MV_REDUCE_MIN, max = capi.MV_REDUCE_MAX, avg = capi.MV_REDUCE_AVG,
}
local NAMES = {}
for name, code in pairs(OPERATIONS) do NAMES[code] = name end

local KNOWN = values.set_of("op, root, draining, tag, async, timeout")
local GROWS = values.set_of("name, ranks, timeout")
local JOINS = values.set_of("name, timeout")
local KNOWN_TO_EXCHANGE = values.set_of("send_rows, receive_rows, async, timeout")

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
  return values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout, tensors and not how.draining and arrays.label(tensors) or nil)
end

---@class polyverso.Group
---@field handle integer the mv_group for the C functions
---@field rank integer this process's rank in the group
---@field size integer the number of ranks
---@field transport string
local Group = {}
Group.__index = Group

local function new(handle, life)
  local info = capi.mv_group_describe(handle)
  return setmetatable({handle = handle, life = life, rank = info.rank, size = info.ranks, transport = info.transport}, Group)
end

--- A table of rank, ranks, hosts, transport, bytes_sent, bytes_received, operations, and why it is broken, if it is.
---@return table
function Group:info() return capi.mv_group_describe(self.handle) end

--- The worker ids of the group, in the order of ranks.
---@return integer[]
function Group:members()
  local ids = {n = self.size}
  capi.mv_group_members(self.handle, ids)
  ids.n = nil
  return ids
end

-- The result of a call: result(), or the request whose result it is. `made` is what the C function has returned.
local function finished(self, name, how, made, result)
  if how.async then return Request.new(made, result, name, self) end
  return result()
end

-- Runs call(tensors, how) on one array or several, which it changes in place. Returns the arrays, or the call's own
-- result; if it is asynchronous, a request.
local function in_place(self, name, found, given, how, call)
  local copies = {}
  how = values.checked(how, KNOWN)
  local made = call(found(given, copies), how)
  return finished(self, name, how, made, function()
    arrays.copy_back(copies)
    copies = {} -- a second wait() must not overwrite later changes
    if made ~= nil and not how.async then return made end
    return given
  end)
end

-- A new array for results, of the kind of `array`, and its tensor.
local function fresh(array, shape)
  if not foreign.is_tensor(array) then
    local like = arrays.one(array)
    local made = tensor.zeros(shape, like:dtype(), like:device())
    return made, made
  end
  local made = array:clone():resize(foreign.torch().LongStorage(shape))
  return made, arrays.one(made)
end

-- An array of shape {ranks, ...} with this rank's own in its place.
local function with_own(self, array)
  local mine = arrays.one(array)
  local shape = mine:shape()
  table.insert(shape, 1, 1)
  local own = mine:reshape(shape)
  shape[1] = self.size
  local made, all = fresh(array, shape)
  all:slice(self.rank, self.rank + 1):assign(own)
  return made, all, mine
end

--- array = the reduction of all ranks' arrays, with the same bits on all ranks. Returns the array.
---@param array polyverso.Array
---@param how? polyverso.GroupOptions
---@return polyverso.Array|polyverso.Request array
function Group:allreduce(array, how)
  return in_place(self, "allreduce", arrays.one, array, how, function(one, said)
    return capi.mv_allreduce(self.handle, one, code(said), options(said, {one}))
  end)
end

--- Reduces several arrays in one operation; returns the number of contributors. The result of a request is the list.
---@param list polyverso.Array[]
---@param how? polyverso.GroupOptions
---@return integer|polyverso.Request contributors
function Group:allreduce_many(list, how)
  return in_place(self, "allreduce_many", arrays.tensors, list, how, function(all, said)
    return capi.mv_allreduce_many(self.handle, all, code(said), flags(said), options(said, all))
  end)
end

--- Takes part in the all-reduces of the other ranks, with zeros, until all ranks have called it.
---@param how? polyverso.TimeoutOptions
function Group:allreduce_zeros(how) capi.mv_allreduce_zeros(self.handle, options(values.checked(how, KNOWN))) end

--- Like allreduce(), but only the root gets the result; the arrays of the other ranks stay unchanged.
---@param array polyverso.Array
---@param how? polyverso.GroupOptions
---@return polyverso.Array|polyverso.Request array
function Group:reduce(array, how)
  return in_place(self, "reduce", arrays.one, array, how, function(one, said)
    return capi.mv_reduce(self.handle, one, code(said), said.root or 0, options(said, {one}))
  end)
end

--- array = the root's array, on all ranks. Returns it.
---@param array polyverso.Array
---@param how? polyverso.GroupOptions
---@return polyverso.Array|polyverso.Request array
function Group:broadcast(array, how)
  return in_place(self, "broadcast", arrays.one, array, how, function(one, said)
    return capi.mv_broadcast(self.handle, one, said.root or 0, options(said, {one}))
  end)
end

--- Broadcasts several arrays in one operation. Returns the list.
---@param list polyverso.Array[]
---@param how? polyverso.GroupOptions
---@return polyverso.Array[]|polyverso.Request list
function Group:broadcast_many(list, how)
  return in_place(self, "broadcast_many", arrays.tensors, list, how, function(all, said)
    return capi.mv_broadcast_many(self.handle, all, said.root or 0, options(said, all))
  end)
end

--- The arrays of all ranks, in the order of ranks; all have the same shape. Returns a tensor of shape {ranks, ...},
--- which is a Torch tensor if `array` is one.
---@param array polyverso.Array
---@param how? polyverso.GroupOptions
---@return polyverso.Array|polyverso.Request all  of shape {ranks, ...}
function Group:allgather(array, how)
  how = values.checked(how, KNOWN)
  local made, all, mine = with_own(self, array)
  return finished(self, "allgather", how, capi.mv_allgather(self.handle, all, options(how, {mine})), function() return made end)
end

--- Like allgather(), but only the root gets the result; the other ranks get nil.
---@param array polyverso.Array
---@param how? polyverso.GroupOptions
---@return polyverso.Array|polyverso.Request|nil all  of shape {ranks, ...} on the root, nil elsewhere
function Group:gather(array, how)
  how = values.checked(how, KNOWN)
  local root = how.root or 0
  local mine, made, all = arrays.one(array)
  if self.rank == root then made, all = with_own(self, array) end
  return finished(self, "gather", how, capi.mv_gather(self.handle, all or mine, root, options(how, {mine})), function() return made end)
end

--- array = this rank's part of the root's `parts`, an array of shape {ranks, ...}. The other ranks' `parts` is not used.
--- Returns the array.
---@param array polyverso.Array
---@param parts? polyverso.Array of shape {ranks, ...}, on the root
---@param how? polyverso.GroupOptions
---@return polyverso.Array|polyverso.Request array
function Group:scatter(array, parts, how)
  return in_place(self, "scatter", arrays.one, array, how, function(one, said)
    local root = said.root or 0
    local all = one
    if self.rank == root then
      all = arrays.one(parts)
      local shape = all:shape()
      if shape[1] ~= self.size or all:count() ~= self.size * one:count() then
        capi.raise(capi.MV_ESHAPE, ("parts has %d elements in %s rows: %d rows of %d elements are needed"):format(
          all:count(), tostring(shape[1] or "no"), self.size, one:count()))
      end
      one:assign(all:slice(root, root + 1):reshape(one:shape()))
    end
    return capi.mv_scatter(self.handle, all, root, options(said, {one}))
  end)
end

--- Every rank sends some rows of its array to every rank, and receives theirs, in the order of ranks. Returns a new
--- array. send_rows, receive_rows: the numbers of rows for and from each rank; as many for all by default. If a rank does
--- not receive as many rows as the other one sends, all ranks get an error (MV_EDISAGREE).
---@param array polyverso.Array
---@param how? polyverso.ExchangeOptions
---@return polyverso.Array|polyverso.Request received
function Group:alltoall(array, how)
  how = values.checked(how, KNOWN_TO_EXCHANGE)
  local mine = arrays.one(array)
  local shape = mine:shape()
  local rows = shape[1] or 1
  local function sum(list)
    local all = 0
    for _, count in ipairs(list) do all = all + count end
    return all
  end
  if (how.send_rows == nil) ~= (how.receive_rows == nil) then
    capi.raise(capi.MV_EINVAL, "send_rows and receive_rows are needed both, or none of them")
  end
  if how.receive_rows then shape[1] = sum(how.receive_rows) end
  local made, all = fresh(array, shape)
  local function result() return made end
  if not how.send_rows then
    return finished(self, "alltoall", how, capi.mv_alltoall(self.handle, {mine, all}, options(how, {mine})), result)
  end
  local each = rows > 0 and mine:count() / rows or 0
  local function elements(list)
    local counts = {}
    for rank, count in ipairs(list) do counts[rank] = count * each end
    return tensor.copy_of(counts, "i64")
  end
  local given = {mine, elements(how.send_rows), all, elements(how.receive_rows)}
  local row = rows > 0 and {mine:slice(0, 1)} or nil
  return finished(self, "alltoall", how, capi.mv_alltoall_counts(self.handle, given, options(how, row)), result)
end

--- Sends the array to rank `to`, which calls recv() with the same tag. Other ranks do not take part. A small array is
--- sent before it is received; send() of a large one returns when it has been received.
---@param array polyverso.Array
---@param to integer a rank
---@param how? polyverso.GroupOptions
---@return polyverso.Request? request  with async
function Group:send(array, to, how)
  how = values.checked(how, KNOWN)
  local one = arrays.one(array)
  return finished(self, "send", how, capi.mv_send(self.handle, one, to, how.tag or 0, options(how, {one})), function() end)
end

--- array = the next array that rank `source` (nil: any rank) has sent to this rank with this tag. Returns the sender's
--- rank. An array of another shape or dtype is an error; it is lost.
---@param array polyverso.Array receives the values
---@param source? integer a rank; nil: any
---@param how? polyverso.GroupOptions
---@return integer|polyverso.Request sender
function Group:recv(array, source, how)
  local copies, sender = {}, tensor.zeros({1}, "i64")
  how = values.checked(how, KNOWN)
  local one = arrays.one(array, copies)
  local made = capi.mv_recv(self.handle, one, source or capi.MV_ANY_RANK, how.tag or 0, sender, options(how, {one}))
  return finished(self, "recv", how, made, function()
    arrays.copy_back(copies)
    copies = {}
    return sender:item()
  end)
end

--- Like allreduce(), but each rank gets only its own part of the result: an equal number of rows for each rank. Returns
--- a view of these rows in `array`; its other rows stay unchanged.
---@param array polyverso.Array
---@param how? polyverso.GroupOptions
---@return polyverso.Array|polyverso.Request part  a view of this rank's rows
function Group:reduce_scatter(array, how)
  local all = arrays.one(array):shape()[1]
  local rows = math.floor(all / self.size)
  if rows * self.size ~= all then capi.raise(capi.MV_ESHAPE, ("%d rows can't be divided evenly among %d ranks"):format(all, self.size)) end
  local first = self.rank * rows
  local copies = {}
  how = values.checked(how, KNOWN)
  local one = arrays.one(array, copies)
  return finished(self, "reduce_scatter", how, capi.mv_reduce_scatter(self.handle, one, code(how), options(how, {one})), function()
    arrays.copy_back(copies)
    copies = {}
    if foreign.is_tensor(array) then return array:narrow(1, first + 1, rows) end
    return arrays.one(array):slice(first, first + rows)
  end)
end

-- ------------------------------------------------------------------ custom reductions

-- Copies between devices and the host, unless place and value are the same tensor.
local function copy_to(places, given)
  for i, place in ipairs(places) do
    if not rawequal(place, given[i]) then place:assign(given[i]) end
  end
end

-- The tensors, with copies on the host of those on devices.
local function on_host(tensors)
  local made = {notes = tensors.notes}
  for i, each in ipairs(tensors) do made[i] = each:device() == "cpu" and each or each:to("cpu") end
  return made
end

local function steps(custom, received, reduce)
  while capi.mv_custom_next(custom, received) == 1 do
    local reduced, failure = failures.run("group:allreduce_custom: reduce", reduce)
    if not reduced then
      failures.report(failure)
      pcall(capi.mv_custom_done, custom, capi.MV_ECANCELED)
      pcall(capi.mv_custom_next, custom, received) -- waits for the failed operation, so that it is not withdrawn
      capi.raise_again(failure)
    end
    capi.mv_custom_done(custom, capi.MV_OK)
  end
end

-- All-reduces tensors with a function: reduce() combines `theirs` into `mine`, once for each set of values that
-- arrives. Returns the number of contributors. ipc.Tree uses it, too.
-- @param labelled  the tensors whose shapes the ranks compare; nil: none
local function reduce_manually(handle, mine, theirs, reduce, how, labelled)
  local sent, received = on_host(mine), on_host(theirs)
  local custom = capi.mv_custom_begin(handle, sent, flags(how), options(how, labelled))
  local ended, failure = pcall(steps, custom, received, function()
    copy_to(theirs, received)
    reduce()
    copy_to(sent, mine)
  end)
  if not ended then
    pcall(capi.mv_custom_end, custom)
    capi.raise_again(failure)
  end
  local contributors = capi.mv_custom_end(custom)
  copy_to(mine, sent)
  return contributors
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
--- function gets an array or a list, like `values`; it changes `mine` in place or returns the result. It gets FFI memory
--- as a tensor. An error in it fails the operation on all ranks. Returns the number of contributors.
---@param given polyverso.Array|polyverso.Array[]
---@param reduce fun(mine: polyverso.Array|polyverso.Array[], theirs: polyverso.Array|polyverso.Array[]): any
---@param how? polyverso.GroupOptions
---@return integer contributors
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
    if result ~= nil then
      local kind = type(result)
      if kind == "string" or kind == "boolean" or kind == "function" or not is_one and kind ~= "table" then
        local needed = is_one and "a tensor" or "a list of tensors"
        capi.raise(capi.MV_EINVAL, ("group:allreduce_custom: reduce must return nothing or %s, not a %s"):format(needed, kind))
      end
      made = is_one and {result} or result
    end
    for i, own in ipairs(mine) do put(own, made[i]) end
  end, how, places)
  for i, leaf in ipairs(leaves) do
    if foreign.is_tensor(leaf.value) and mine[i] ~= leaf.value then leaf.value:copy(mine[i]) end
  end
  return contributors
end

-- ------------------------------------------------------------------ uneven endings

--- For a rank without further data: waits for the next all-reduce of the other ranks, in which this rank must then take
--- part with draining = true. Returns a table of op (nil if they reduce by a function of their own) and arrays, each
--- with count and dtype; or nil once all ranks drain.
---@param how? polyverso.TimeoutOptions
---@return {op: string?, arrays: {count: integer, dtype: polyverso.dtype}[]}? next
function Group:drain(how)
  local told = capi.mv_allreduce_drain(self.handle, options(values.checked(how, KNOWN)))
  if told.finished == 1 then return nil end
  for _, array in ipairs(told.arrays) do array.dtype = tensor.name_of(array.dtype) end
  return {op = NAMES[told.reduction], arrays = told.arrays}
end

--- Waits until all ranks have called it.
---@param how? polyverso.CallOptions
---@return polyverso.Request? request  with async
function Group:barrier(how)
  how = values.checked(how, KNOWN)
  return finished(self, "barrier", how, capi.mv_group_barrier(self.handle, options(how)), function() end)
end

--- After a rank is lost: makes a new group of the survivors, which must all call it.
---@param how? polyverso.TimeoutOptions
---@return polyverso.Group
function Group:shrink(how) return new(capi.mv_group_shrink(self.handle, options(values.checked(how, KNOWN))), self.life) end

--- Makes a new group of the ranks that are not lost and of workers that call join() with this name, once it has at least
--- `ranks` ranks. All ranks call it. nil if the group is not broken, has that many ranks, and no worker joins: the group
--- continues. The rank info().elder of the new group was a member before and has the state of the training, which
--- newcomers lack.
---@param how? polyverso.GrowOptions
---@return polyverso.Group?
function Group:grow(how)
  how = values.checked(how, GROWS)
  local grown = capi.mv_group_grow(self.handle, how.name or "", how.ranks or 0, options(how))
  if grown ~= 0 then return new(grown, self.life) end
end

--- Closes the group: ranks that wait for this one, now or later, get an error that names it.
function Group:close()
  local handle, has_ended = self.handle, objects.end_of(self)
  self.handle, self.ended = 0, self.ended or "after close()"
  if handle ~= 0 and not has_ended then capi.mv_group_close(handle) end
end

--- Leaves the group because this rank has failed: the operations of the other ranks, also later ones, fail with this
--- reason. They can continue without this rank: shrink(). Does nothing on a group that is closed.
---@param reason? any an error or a text
function Group:abort(reason)
  if objects.end_of(self) then return end
  local handle = self.handle
  self.handle, self.ended = 0, "after abort()"
  capi.mv_group_abort(handle, reason ~= nil and failures.one_line(reason) or nil)
end

--- The end of a block with `local group <close> = group.open(node)`, in Lua 5.4: closes the group, or aborts after an
--- error.
---@param failure? any
function Group:__close(failure)
  if failure == nil then self:close() else self:abort(failure) end
end

--- How messages name the group.
---@return string
function Group:described() return ("the group of rank %d of %d"):format(self.rank, self.size) end

--- <polyverso.Group rank 0 of 4, shm>
function Group:__tostring() return objects.text(self, "Group", ("rank %d of %d"):format(self.rank, self.size), self.transport) end

objects.finish("group", Group, {close = true, abort = true})

local function handle_of(node) return values.node_handle("group.open", node) end

return {
  --- Opens a group of `workers`, a table of worker ids; nil: all of the node's cluster. All members must call this.
  ---@param node polyverso.Node
  ---@param workers? integer[]
  ---@return polyverso.Group
  open = function(node, workers) return new(capi.mv_group_open(handle_of(node), workers), objects.life_of(handle_of(node))) end,
  --- Opens a group of the workers on this machine. All of them must call this.
  ---@param node polyverso.Node
  ---@return polyverso.Group
  of_host = function(node) return new(capi.mv_group_open_host(handle_of(node)), objects.life_of(handle_of(node))) end,
  --- Joins the group of other workers when they call grow() with this name: for a new process that replaces a lost one.
  ---@param node polyverso.Node
  ---@param how? polyverso.GrowOptions
  ---@return polyverso.Group
  join = function(node, how)
    how = values.checked(how, JOINS)
    local handle = values.node_handle("group.join", node)
    return new(capi.mv_group_join(handle, how.name or "", options(how)), objects.life_of(handle))
  end,
  --- All-reduces tensors with a function, for ipc.Tree: see above.
  ---@type fun(handle: integer, mine: polyverso.Tensor[], theirs: polyverso.Tensor[], reduce: fun(), how: table, labelled?: table): integer
  reduce_manually = reduce_manually,
}
