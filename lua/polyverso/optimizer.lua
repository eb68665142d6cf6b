--- MXNet's optimizers by their names: descriptions of how the servers, or a local store, apply pushes.
--
--     local optimizer = require("polyverso.optimizer")
--     kv:set_optimizer(optimizer.create("adam", {learning_rate = 0.01, wd = 1e-4}))
--     kv:set_optimizer(optimizer.SGD{momentum = 0.9})
--
-- Only text is sent, tostring(made): the formulas are in the library. docs/optimizers.md lists them with their
-- parameters and defaults. Common parameters of all:
--   learning_rate = the rate, or the start of a schedule; rescale_grad, clip_gradient, wd, begin_num_update
--   lr_scheduler = one of polyverso.lr_scheduler's
--   param_idx2name = {[key] = name}: among named parameters, only those that end in _weight or _gamma decay

local capi = require("polyverso.capi")
local names = require("polyverso.names")

-- Each optimizer's name on the servers, its own parameters, and MXNet's own default rate, if any, which a schedule's
-- base_lr does not replace.
local KINDS = {
  SGD = {"mx.sgd", "momentum lazy_update"},
  NAG = {"mx.nag", "momentum"},
  Signum = {"mx.signum", "momentum wd_lh", 0.01},
  FTML = {"mx.ftml", "beta1 beta2 epsilon"},
  LBSGD = {"mx.lbsgd", "momentum warmup_strategy warmup_epochs batch_scale updates_per_epoch begin_epoch num_epochs"},
  DCASGD = {"mx.dcasgd", "momentum lamda"},
  SGLD = {"mx.sgld", "seed"},
  Adam = {"mx.adam", "beta1 beta2 epsilon lazy_update", 0.001},
  AdamW = {"mx.adamw", "beta1 beta2 epsilon", 0.001},
  Adamax = {"mx.adamax", "beta1 beta2", 0.002},
  Nadam = {"mx.nadam", "beta1 beta2 epsilon schedule_decay", 0.001},
  AdaGrad = {"mx.adagrad", "eps"},
  AdaDelta = {"mx.adadelta", "rho epsilon"},
  RMSProp = {"mx.rmsprop", "gamma1 gamma2 epsilon centered clip_weights", 0.001},
  Ftrl = {"mx.ftrl", "lamda1 beta", 0.1},
  LAMB = {"mx.lamb", "beta1 beta2 epsilon lower_bound upper_bound bias_correction", 0.001},
  Lion = {"mx.lion", "beta1 beta2", 0.0001},
  Test = {"mx.test", ""},
}
-- Other spellings, from MXNet and AI::MXNet.
local ALIASES = {warmup_startegy = "warmup_strategy", float_stable_eps = "eps", lambda = "lamda", lambda1 = "lamda1"}
local COMMON = "learning_rate rescale_grad clip_gradient wd begin_num_update"

---@class polyverso.Optimizer
local Optimizer = {}
Optimizer.__index = Optimizer

local function text(value)
  if type(value) == "boolean" then return value and "1" or "0" end
  if type(value) ~= "number" then return tostring(value) end
  local short = ("%.15g"):format(value)
  return tonumber(short) == value and short or ("%.17g"):format(value)
end

--- The text for kv_set_optimizer() and for the tables' updaters.
function Optimizer:__tostring()
  local words = {}
  for _, parameters in ipairs{self.parameters, self.lr_scheduler or {}} do
    for name, value in pairs(parameters) do words[#words + 1] = name .. "=" .. text(value) end
  end
  table.sort(words)
  return table.concat({self.kind, (unpack or table.unpack)(words)}, " ")
end

--- Takes effect with the next push to a store of this process, and in other stores with the next set_optimizer().
---@param rate number
function Optimizer:set_learning_rate(rate)
  if self.lr_scheduler then capi.raise(capi.MV_ESTATE, "the lr_scheduler sets the learning rate: it can't be set directly") end
  self.parameters.learning_rate = rate
end

--- Sets factors of the rate, by key or by name.
---@param factors table<integer|string, number>
function Optimizer:set_lr_mult(factors) self.lr_mult = factors end

--- Sets factors of the weight decay, by key or by name. The default is 0 for named parameters that are neither weights
--- nor gammas, otherwise 1.
---@param factors table<integer|string, number>
function Optimizer:set_wd_mult(factors)
  self.wd_mult = {}
  for _, name in pairs(self.idx2name) do
    if not name:find("_weight$") and not name:find("_gamma$") then self.wd_mult[name] = 0 end
  end
  for name, factor in pairs(factors) do self.wd_mult[name] = factor end
end

--- The factors of rate and weight decay for a key.
---@param key integer|string
---@return number rate
---@return number decay
function Optimizer:factors_of(key)
  local name = self.idx2name[key] or key
  return self.lr_mult[key] or self.lr_mult[name] or 1, self.wd_mult[key] or self.wd_mult[name] or 1
end

--- All factors as one text, for comparison.
---@return string
function Optimizer:all_factors()
  local words = {}
  for which, factors in pairs{lr = self.lr_mult, wd = self.wd_mult} do
    for key, factor in pairs(factors) do words[#words + 1] = ("%s %s %s=%.17g"):format(which, type(key), key, factor) end
  end
  table.sort(words)
  return table.concat(words, "\n")
end

local function names_of(kind)
  local known = {}
  for name in (kind[2] .. " " .. COMMON):gmatch("%S+") do known[name] = true end
  return known
end

--- The optimizers, by MXNet's names.
---@class polyverso.optimizers
---@field SGD fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field NAG fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field Signum fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field FTML fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field LBSGD fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field DCASGD fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field SGLD fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field Adam fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field AdamW fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field Adamax fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field Nadam fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field AdaGrad fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field AdaDelta fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field RMSProp fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field Ftrl fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field LAMB fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field Lion fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
---@field Test fun(settings?: polyverso.OptimizerSettings|table): polyverso.Optimizer
local module = {}
for class, kind in pairs(KINDS) do
  local known = names_of(kind)
  module[class] = function(settings)
    if settings ~= nil and type(settings) ~= "table" then
      capi.raise(capi.MV_EINVAL, ("%s takes a table of parameters, {learning_rate = 0.01}, not a %s"):format(class, type(settings)))
    end
    local made = {kind = kind[1], parameters = {learning_rate = kind[3]}, idx2name = {}, lr_mult = {}}
    for name, value in pairs(settings or {}) do
      if name == "lr_scheduler" then
        made.lr_scheduler = value
      elseif name == "param_idx2name" then
        made.idx2name = value
      elseif known[name] then
        made.parameters[name] = value
      elseif ALIASES[name] and known[ALIASES[name]] then
        made.parameters[ALIASES[name]] = value
      elseif name ~= "multi_precision" and name ~= "sym" then -- 16-bit floats are always updated in 32 bits
        local listed = ("%s %s lr_scheduler param_idx2name"):format(kind[2], COMMON)
        local similar = names.did_you_mean(name, names.words(listed))
        capi.raise(capi.MV_EINVAL, ("%s has no parameter '%s'; known: %s%s"):format(class, tostring(name), listed, similar))
      end
    end
    setmetatable(made, Optimizer):set_wd_mult{}
    return made
  end
end

--- create("adam", {learning_rate = 0.01}): the optimizer of that name, case-insensitive.
---@param name string
---@param settings? polyverso.OptimizerSettings|table
---@return polyverso.Optimizer
function module.create(name, settings)
  local all = {}
  for class in pairs(KINDS) do
    if class:lower() == name:lower() then return module[class](settings) end
    all[#all + 1] = class:lower()
  end
  table.sort(all)
  local similar = names.did_you_mean(name, all):gsub("%?$", "")
  capi.raise(capi.MV_EINVAL, ('unknown optimizer "%s"%s; known: %s'):format(name, similar, table.concat(all, ", ")))
end

return names.refuse_classes(module, "optimizer")
