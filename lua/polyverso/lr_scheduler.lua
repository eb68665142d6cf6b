--- Learning-rate schedules with MXNet's names. The optimizer that contains a schedule carries it to the servers.
--
--     optimizer.SGD{lr_scheduler = lr_scheduler.FactorScheduler{step = 1000, factor = 0.5, base_lr = 0.1}}
--
-- The servers, or a local store, compute the rate from a key's number of updates; docs/optimizers.md has the formulas.
-- A schedule called with a number of updates returns the rate at that update: lr_scheduler.PolyScheduler{max_update =
-- 100}(50). All schedules take base_lr, the rate at their start, and warmup_steps, warmup_begin_lr and warmup_mode.

local capi = require("polyverso.capi")
local names = require("polyverso.names")

local COMMON = {base_lr = true, warmup_steps = true, warmup_begin_lr = true, warmup_mode = true}

local KINDS = {
  FactorScheduler = {lr_scheduler = "factor", own = {step = true, factor = true, stop_factor_lr = true}},
  MultiFactorScheduler = {lr_scheduler = "multifactor", own = {step = true, factor = true}}, -- step: a list
  PolyScheduler = {lr_scheduler = "poly", own = {max_update = true, pwr = true, final_lr = true}},
  CosineScheduler = {lr_scheduler = "cosine", own = {max_update = true, final_lr = true}},
}

--- A schedule; called with a number of updates, it returns the rate at that update.
---@class polyverso.Schedule
---@overload fun(num_update: integer): number
local Schedule = {}

function Schedule:__call(num_update)
  local words = {"mx.sgd"}
  for name, value in pairs(self) do words[#words + 1] = name .. "=" .. tostring(value) end
  return capi.kv_optimizer_rate(table.concat(words, " "), num_update)
end

-- Refuses settings that the library would take for a growing rate or for no step; schedule(0) raises the library's own
-- errors.
local function check(name, settings, schedule)
  local steps = type(settings.step) == "table" and settings.step or {settings.step}
  local before = 0
  for _, step in ipairs(steps) do
    if type(step) ~= "number" or step <= before or step % 1 ~= 0 then
      capi.raise(capi.MV_EINVAL, ("%s: update numbers must be ascending and at least 1, not %s"):format(name, tostring(step)))
    end
    before = step
  end
  if name:find("Factor") and #steps == 0 then capi.raise(capi.MV_EINVAL, ("%s needs a step"):format(name)) end
  if (tonumber(schedule.factor) or 1) > 1 then
    capi.raise(capi.MV_EINVAL, ("factor = %s: must be 1 or less, so that the rate does not grow"):format(schedule.factor))
  end
  schedule(0)
end

--- The schedules, by MXNet's names.
---@class polyverso.schedules
---@field FactorScheduler fun(settings: polyverso.ScheduleSettings|{step: integer, factor: number?}): polyverso.Schedule
---@field MultiFactorScheduler fun(settings: polyverso.ScheduleSettings|{step: integer[], factor: number?}): polyverso.Schedule
---@field PolyScheduler fun(settings: polyverso.ScheduleSettings|{max_update: integer, pwr: number?, final_lr: number?}): polyverso.Schedule
---@field CosineScheduler fun(settings: polyverso.ScheduleSettings|{max_update: integer, final_lr: number?}): polyverso.Schedule
local module = {}
for name, kind in pairs(KINDS) do
  module[name] = function(settings)
    local parameters = {lr_scheduler = kind.lr_scheduler, base_lr = 0.01}
    for key, value in pairs(settings or {}) do
      if not (kind.own[key] or COMMON[key]) then
        local known = {}
        for _, names_of in ipairs{kind.own, COMMON} do
          for parameter in pairs(names_of) do known[#known + 1] = parameter end
        end
        table.sort(known)
        local similar = names.did_you_mean(key, known)
        capi.raise(capi.MV_EINVAL, ("a %s has no parameter '%s'; known: %s%s"):format(name, tostring(key), table.concat(known, " "), similar))
      end
      parameters[key] = type(value) == "table" and table.concat(value, ":") or value
    end
    local made = setmetatable(parameters, Schedule)
    check(name, settings or {}, made)
    return made
  end
end
return names.refuse_classes(module, "schedule")
