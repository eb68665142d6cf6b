--- Training spread over the ranks of a group, beside any training loop: torch-distlearn's AllReduceSGD and AllReduceEA, and more.
--
--     local distlearn = require("polyverso.distlearn")
--     local sgd = distlearn.AllReduceSGD(group)
--     sgd:synchronize_parameters(params)              -- all ranks begin with the same values
--     for batch in batches do                         -- ranks may have different numbers of them
--       local grads = gradients(params, batch)
--       sgd:sum_and_normalize_gradients(grads)
--       step(params, grads)
--     end
--     sgd:synchronize_parameters(params)              -- waits for the others, and has the same bits as they have
--
-- Parameters and gradients are polyverso.tensor's, Torch's (or the stand-in's) tensors, FFI memory, or nested tables of these, in the order of
-- their sorted keys. They are changed in place. `how` is nil or {timeout = seconds}. docs/distlearn.md tells more; distlearn.AllReduceSGD
-- and distlearn.AllReduceEA, without polyverso, are torch-distlearn's own modules.

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local values = require("polyverso.values")

local KNOWN = values.set_of("timeout")

local function options(how) return values.call_options(0, values.checked(how, KNOWN).timeout) end

local function handle_of(given) return type(given) == "table" and given.handle or given end

-- call(handle, arrays, ...) on what is nested. After a signal it is not to go on in memory that may soon be gone.
local function on_arrays(self, call, nested, ...)
  local copies = {}
  local ended, result = pcall(call, self.handle, arrays.tensors(nested, copies), ...)
  if ended then
    arrays.copy_back(copies)
    return result
  end
  if type(result) ~= "table" or result.code == capi.MV_EINTR then pcall(capi.mv_strategy_cancel, self.handle) end
  error(result, 0)
end

local function method(call) return function(self, nested, how) return on_arrays(self, call, nested, options(how)) end end

local methods = {}

--- A table of steps, operations, payload_bytes and dense_bytes.
function methods:meter()
  local meter = {}
  meter.steps, meter.operations, meter.payload_bytes, meter.dense_bytes = capi.mv_strategy_meter(self.handle)
  return meter
end

--- Gives the strategy back, as does its collection.
function methods:close()
  local handle = self.handle
  self.handle = 0
  if handle ~= 0 then self.closes_with(handle) end
end

-- A function that makes strategies: open(...) gives a handle, close() takes it back.
local function class(open, close, own)
  own.closes_with = close
  local index = {__index = setmetatable(own, {__index = methods})}
  return function(...)
    local handle = open(...)
    return setmetatable({handle = handle, owner = values.owner(function() pcall(close, handle) end)}, index)
  end
end

local function on_group(open) return function(group, ...) return open(handle_of(group), ...) end end

local distlearn = {}

--- AllReduceSGD(group): one mini-batch spread over the ranks. The gradients become their sum over all ranks, or that divided by the ranks
-- that contributed to this step; how many these are is returned. synchronize_parameters() waits for ranks that still step; then all have the
-- parameters of the one with most steps, or the lowest rank's.
distlearn.AllReduceSGD = class(on_group(capi.mv_sgd_open), capi.mv_sgd_close, {
  sum_gradients = method(capi.mv_sgd_sum_gradients),
  sum_and_normalize_gradients = method(capi.mv_sgd_sum_and_normalize),
  synchronize_parameters = method(capi.mv_sgd_synchronize),
})

--- AllReduceEA(group, tau, alpha), elastic averaging: average_parameters() after each step moves the parameters, every `tau` steps, towards a
-- centre by `alpha` of their difference to it. The others wait for ranks that still step; then all have the same centre, or also the lowest
-- rank's parameters.
distlearn.AllReduceEA = class(on_group(capi.mv_ea_open), capi.mv_ea_close, {
  average_parameters = method(capi.mv_ea_average),
  synchronize_center = method(capi.mv_ea_synchronize_center),
  synchronize_parameters = method(capi.mv_ea_synchronize_parameters),
  --- parameters = the centre.
  read_center = function(self, parameters) on_arrays(self, capi.mv_ea_read_center, parameters) end,
})

--- AsyncEA(table, tau, alpha): elastic averaging against a centre in a table, which each worker meets alone.
distlearn.AsyncEA = class(on_group(capi.mv_async_ea_open), capi.mv_async_ea_close, {
  average_parameters = method(capi.mv_async_ea_average),
  read_center = method(capi.mv_async_ea_read),
})

local function settings_text(inner_steps, settings)
  local words = {("inner_steps=%.17g"):format(inner_steps)}
  for _, name in ipairs(arrays.sorted_keys(settings)) do words[#words + 1] = ("%s=%.17g"):format(name, settings[name]) end
  return table.concat(words, " ")
end

--- LocalSGD(group, inner_steps [, settings]): ranks train by themselves and meet every `inner_steps`; with an outer rate and momentum this is
-- DiLoCo, with fragments and an overlap its streaming variant: outer_rate, outer_momentum, fragments, overlap, mixing. step() comes after each
-- inner step; synchronize_parameters() waits for ranks that still step, then all have the same bits.
distlearn.LocalSGD = class(function(group, inner_steps, settings)
  return capi.mv_local_sgd_open(handle_of(group), settings_text(inner_steps, settings or {}))
end, capi.mv_local_sgd_close, {
  step = method(capi.mv_local_sgd_step),
  synchronize_parameters = method(capi.mv_local_sgd_synchronize),
})

--- LocalSGD with DiLoCo's outer step.
function distlearn.DiLoCo(group, inner_steps, settings)
  local all = {outer_rate = 0.7, outer_momentum = 0.9}
  for name, value in pairs(settings or {}) do all[name] = value end
  return distlearn.LocalSGD(group, inner_steps, all)
end

-- Of each array how many rows it has as a matrix: convolutions' kernels, too, one row an output.
local function rows_of(nested)
  local rows = {}
  for i, leaf in ipairs(arrays.leaves(nested)) do
    local shape = leaf.tensor:shape()
    rows[i] = #shape > 1 and shape[1] or 0
  end
  return rows
end

local function method_with_rows(call)
  return function(self, nested, how) return on_arrays(self, call, nested, rows_of(nested), options(how)) end
end

--- CompressedAllReduce(group, how): averages of gradients that travel as less than they are: "int8", "topk ratio=0.01", "powersgd rank=4".
-- average_gradients() returns how many ranks contribute; finish() waits for ranks that still step, whatever the gradients' values are.
distlearn.CompressedAllReduce = class(on_group(capi.mv_compressed_open), capi.mv_compressed_close, {
  average_gradients = method_with_rows(capi.mv_compressed_average),
  finish = method_with_rows(capi.mv_compressed_finish),
})

return distlearn
