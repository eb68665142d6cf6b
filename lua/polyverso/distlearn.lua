--- Distributed training on the ranks of a group: torch-distlearn's AllReduceSGD and AllReduceEA, and other strategies,
-- for any training loop.
--
--     local distlearn = require("polyverso.distlearn")
--     local sgd = distlearn.AllReduceSGD(group)
--     sgd:synchronize_parameters(params)              -- all ranks begin with the same values
--     for batch in batches do                         -- the number of batches may differ between ranks
--       local grads = gradients(params, batch)
--       sgd:sum_and_normalize_gradients(grads)
--       step(params, grads)
--     end
--     sgd:synchronize_parameters(params)              -- waits for the others; then all ranks have the same bits
--
-- Parameters and gradients are polyverso.tensor's tensors, Torch's (or its stand-in's) tensors, FFI memory, or nested
-- tables of these, in the order of their sorted keys. They are changed in place. `how` is nil or {timeout = seconds}.
-- docs/distlearn.md is the guide. torch-distlearn's own modules are distlearn.AllReduceSGD and distlearn.AllReduceEA,
-- without polyverso.

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local names = require("polyverso.names")
local objects = require("polyverso.objects")
local values = require("polyverso.values")

local KNOWN = values.set_of("timeout")

-- The ranks compare the names and shapes of the arrays. `label` replaces what is computed from them.
local function options(how, leaves, label)
  local tensors, places = {}, {}
  for i, leaf in ipairs(leaves or {}) do tensors[i], places[i] = leaf.tensor, leaf.name end
  return values.call_options(0, values.checked(how, KNOWN).timeout, label or leaves and arrays.label(tensors, places))
end

-- The handle of the group, or of the table, that a strategy is made on.
local function handle_of(given, call, kind)
  if type(given) == "number" then return given end
  if type(given) ~= "table" or type(given.handle) ~= "number" then
    capi.raise(capi.MV_EINVAL, ("%s: a %s is needed, not %s"):format(call, kind, given == nil and "nil" or "a " .. type(given)))
  end
  local why = objects.end_of(given)
  if why then capi.raise(capi.MV_EHANDLE, ("%s: %s: it was used %s"):format(call, given:described(), why)) end
  return given.handle
end

-- Runs call(handle, arrays, ...) on nested arrays; more(leaves) returns the further arguments. After a signal it cancels
-- the call, whose memory may soon be freed.
local function on_arrays(self, call, nested, more)
  local copies, tensors = {}, {}
  local leaves = arrays.leaves(nested, copies)
  for i, leaf in ipairs(leaves) do tensors[i] = leaf.tensor end
  local ended, result = pcall(call, self.handle, tensors, more(leaves))
  if ended then
    arrays.copy_back(copies)
    return result
  end
  if type(result) ~= "table" or result.code == capi.MV_EINTR then pcall(capi.mv_strategy_cancel, self.handle) end
  capi.raise_again(result)
end

-- A method of a strategy whose ranks pass the same arrays.
local function method(call)
  return function(self, nested, how, label)
    return on_arrays(self, call, nested, function(leaves) return options(how, leaves, label) end)
  end
end

-- A method of a strategy without other ranks.
local function method_alone(call)
  return function(self, nested, how) return on_arrays(self, call, nested, function() return options(how) end) end
end

local methods = {}

--- A table of steps, operations, payload_bytes and dense_bytes.
---@return polyverso.Meter
function methods:meter()
  local meter = {}
  meter.steps, meter.operations, meter.payload_bytes, meter.dense_bytes = capi.mv_strategy_meter(self.handle)
  return meter
end

--- Closes the strategy. Garbage collection closes it, too.
function methods:close()
  local handle = self.handle
  self.handle = 0
  if handle ~= 0 then self.closes_with(handle) end
end

objects.finish("strategy", methods)

-- A constructor of strategies: open(...) returns a handle, close(handle) closes it.
local function class(kind, open, close, own)
  objects.finish("strategy", own)
  own.closes_with = close
  local index = {__index = setmetatable(own, {__index = methods}), __close = methods.__close}
  --- <polyverso.AllReduceSGD>
  function index:__tostring() return ("<polyverso.%s%s>"):format(kind, self.handle == 0 and ", after close()" or "") end
  return function(...)
    local handle = open(...)
    return setmetatable({handle = handle, owner = values.owner(function() pcall(close, handle) end)}, index)
  end
end

local function on_group(name, open)
  return function(group, ...) return open(handle_of(group, "distlearn." .. name, "group"), ...) end
end

---@class polyverso.Strategy
---@field handle integer
---@field meter fun(self: polyverso.Strategy): polyverso.Meter
---@field close fun(self: polyverso.Strategy)

---@class polyverso.AllReduceSGD: polyverso.Strategy
---@field sum_gradients fun(self: polyverso.AllReduceSGD, gradients: polyverso.Arrays, how?: polyverso.TimeoutOptions): integer contributors
---@field sum_and_normalize_gradients fun(self: polyverso.AllReduceSGD, gradients: polyverso.Arrays, how?: polyverso.TimeoutOptions): integer
---@field synchronize_parameters fun(self: polyverso.AllReduceSGD, parameters: polyverso.Arrays, how?: polyverso.TimeoutOptions)

---@class polyverso.AllReduceEA: polyverso.Strategy
---@field average_parameters fun(self: polyverso.AllReduceEA, parameters: polyverso.Arrays, how?: polyverso.TimeoutOptions)
---@field synchronize_center fun(self: polyverso.AllReduceEA, parameters: polyverso.Arrays, how?: polyverso.TimeoutOptions)
---@field synchronize_parameters fun(self: polyverso.AllReduceEA, parameters: polyverso.Arrays, how?: polyverso.TimeoutOptions)
---@field read_center fun(self: polyverso.AllReduceEA, parameters: polyverso.Arrays) parameters = the centre

---@class polyverso.AsyncEA: polyverso.Strategy
---@field average_parameters fun(self: polyverso.AsyncEA, parameters: polyverso.Arrays, how?: polyverso.TimeoutOptions)
---@field read_center fun(self: polyverso.AsyncEA, parameters: polyverso.Arrays, how?: polyverso.TimeoutOptions) parameters = the centre

---@class polyverso.LocalSGD: polyverso.Strategy
---@field step fun(self: polyverso.LocalSGD, parameters: polyverso.Arrays, how?: polyverso.TimeoutOptions)
---@field synchronize_parameters fun(self: polyverso.LocalSGD, parameters: polyverso.Arrays, how?: polyverso.TimeoutOptions)

---@class polyverso.CompressedAllReduce: polyverso.Strategy
---@field average_gradients fun(self: polyverso.CompressedAllReduce, gradients: polyverso.Arrays, how?: polyverso.TimeoutOptions): integer
---@field finish fun(self: polyverso.CompressedAllReduce, gradients: polyverso.Arrays, how?: polyverso.TimeoutOptions)

local distlearn = {}

--- AllReduceSGD(group): data-parallel SGD, one mini-batch divided among the ranks. Gradients become their sum over all
--- ranks, or this sum divided by the number of ranks that contributed to the step. Both calls return this number.
--- synchronize_parameters() waits for ranks that still step; then all ranks get the parameters of the rank with the most
--- steps, or, if no rank has made a step, those of the lowest rank.
---@type fun(group: polyverso.Group): polyverso.AllReduceSGD
distlearn.AllReduceSGD = class("AllReduceSGD", on_group("AllReduceSGD", capi.mv_sgd_open), capi.mv_sgd_close, {
  sum_gradients = method(capi.mv_sgd_sum_gradients),
  sum_and_normalize_gradients = method(capi.mv_sgd_sum_and_normalize),
  synchronize_parameters = method(capi.mv_sgd_synchronize),
})

--- AllReduceEA(group, tau, alpha): elastic averaging. Call average_parameters() after each step: every `tau` steps it
--- moves the parameters towards a centre, by `alpha` times the difference. The synchronize calls wait for ranks that
--- still step; then all ranks have the same centre, and after synchronize_parameters() also the lowest rank's
--- parameters.
---@type fun(group: polyverso.Group, tau: integer, alpha: number): polyverso.AllReduceEA
distlearn.AllReduceEA = class("AllReduceEA", on_group("AllReduceEA", capi.mv_ea_open), capi.mv_ea_close, {
  average_parameters = method(capi.mv_ea_average),
  synchronize_center = method(capi.mv_ea_synchronize_center),
  synchronize_parameters = method(capi.mv_ea_synchronize_parameters),
  --- parameters = the centre.
  ---@param parameters polyverso.Arrays changed in place
  read_center = function(self, parameters) on_arrays(self, capi.mv_ea_read_center, parameters, function() end) end,
})

--- AsyncEA(table, tau, alpha): elastic averaging with a table as centre, to which each worker synchronizes
--- independently.
---@type fun(table: polyverso.Table, tau: integer, alpha: number): polyverso.AsyncEA
distlearn.AsyncEA = class("AsyncEA", function(centre, ...)
  return capi.mv_async_ea_open(handle_of(centre, "distlearn.AsyncEA", "table"), ...)
end, capi.mv_async_ea_close, {
  average_parameters = method_alone(capi.mv_async_ea_average),
  read_center = method_alone(capi.mv_async_ea_read),
})

-- Opens LocalSGD by the name that the script calls.
local function open_local(name, group, inner_steps, settings)
  name = "distlearn." .. name
  if type(inner_steps) ~= "number" then
    local given = inner_steps == nil and "nil" or "a " .. type(inner_steps)
    capi.raise(capi.MV_EINVAL, ("%s: inner_steps must be a number, not %s: write %s(group, 10)"):format(name, given, name))
  end
  if settings ~= nil and type(settings) ~= "table" then
    capi.raise(capi.MV_EINVAL, ("%s: the settings must be a table, such as {fragments = 2}, not a %s"):format(name, type(settings)))
  end
  local all = {inner_steps = inner_steps}
  for setting, value in pairs(settings or {}) do all[setting] = value end
  names.called("mv_local_sgd_open", name)
  return capi.mv_local_sgd_open(handle_of(group, name, "group"), values.settings_words(all))
end

local local_sgd = class("LocalSGD", open_local, capi.mv_local_sgd_close, {
  step = method(capi.mv_local_sgd_step),
  synchronize_parameters = method(capi.mv_local_sgd_synchronize),
})

--- LocalSGD(group, inner_steps [, settings]): each rank trains by itself, and the ranks exchange their parameters every
--- `inner_steps` steps. With an outer rate and momentum this is DiLoCo; with fragments and an overlap, Streaming DiLoCo.
--- Settings: outer_rate, outer_momentum, fragments, overlap, mixing. Call step() after each inner step.
--- synchronize_parameters() waits for ranks that still step; then all ranks have the same bits.
---@param group polyverso.Group
---@param inner_steps integer
---@param settings? polyverso.OuterSettings
---@return polyverso.LocalSGD
function distlearn.LocalSGD(group, inner_steps, settings) return local_sgd("LocalSGD", group, inner_steps, settings) end

--- LocalSGD with DiLoCo's outer step.
---@param group polyverso.Group
---@param inner_steps integer
---@param settings? polyverso.OuterSettings
---@return polyverso.LocalSGD
function distlearn.DiLoCo(group, inner_steps, settings)
  if settings ~= nil and type(settings) ~= "table" then return local_sgd("DiLoCo", group, inner_steps, settings) end
  local all = {outer_rate = 0.7, outer_momentum = 0.9}
  for name, value in pairs(settings or {}) do all[name] = value end
  return local_sgd("DiLoCo", group, inner_steps, all)
end

-- For each array, its number of rows as a matrix, 0 for a vector. A convolution's kernel has one row for each output.
local function rows_of(leaves)
  local rows = {}
  for i, leaf in ipairs(leaves) do
    local shape = leaf.tensor:shape()
    rows[i] = #shape > 1 and shape[1] or 0
  end
  return rows
end

local function method_with_rows(call)
  return function(self, nested, how)
    return on_arrays(self, call, nested, function(leaves) return rows_of(leaves), options(how, leaves) end)
  end
end

--- CompressedAllReduce(group, how): averages of gradients that are transferred compressed: "int8", "topk ratio=0.01",
--- "powersgd rank=4". average_gradients() returns the number of contributors. finish() waits for ranks that still step,
--- and ignores the gradients' values.
---@type fun(group: polyverso.Group, how: string): polyverso.CompressedAllReduce
distlearn.CompressedAllReduce = class("CompressedAllReduce", on_group("CompressedAllReduce", capi.mv_compressed_open), capi.mv_compressed_close, {
  average_gradients = method_with_rows(capi.mv_compressed_average),
  finish = method_with_rows(capi.mv_compressed_finish),
})

return names.refuse_classes(distlearn, "strategy")
