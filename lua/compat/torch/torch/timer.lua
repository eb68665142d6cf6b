--- torch.Timer: a stopwatch of real and processor time, which runs from its construction. Internal.

local class = require("torch.class")
local strided = require("torch.types").strided

local module = {}
local Timer = class.class("torch.Timer", nil, module)

function Timer:__init() self:reset() end

function Timer:reset()
  self.real, self.processor = 0, 0
  self.since, self.processor_since = strided.clock(), os.clock()
  return self
end

--- {real = seconds, user = processor seconds, sys = 0, because Lua has no separate system time}
function Timer:time()
  local running = self.since and 1 or 0
  return {
    real = self.real + running * (strided.clock() - (self.since or 0)),
    user = self.processor + running * (os.clock() - (self.processor_since or 0)),
    sys = 0,
  }
end

function Timer:stop()
  local now = self:time()
  self.real, self.processor, self.since = now.real, now.user, nil
  return self
end

function Timer:resume()
  if not self.since then self.since, self.processor_since = strided.clock(), os.clock() end
  return self
end

return module.Timer
