--- A call under way, of a table's or node's method with async = true. One that is dropped goes on; nobody hears how it ended, but for an
-- add's error, which the table's next call, barrier() or shutdown() raises.

local capi = require("polyverso.capi")
local values = require("polyverso.values")

local Request = {}
Request.__index = Request

--- @param result a function that gives the finished call's result; nil if it has none
function Request.new(handle, result)
  local self = setmetatable({handle = handle, result = result}, Request)
  if newproxy then self.owner = values.owner(function() self:__gc() end) end
  return self
end

--- Tables have no finalizers in Lua 5.1, what values.owner() gives has one.
function Request:__gc()
  if self.handle then pcall(capi.mv_request_release, self.handle) end -- or its node has ended, or this is a forked child
end

-- A wait that timed out leaves the request alive; its own error releases it.
local function alive(self)
  local known, failure = pcall(capi.mv_request_error, self.handle)
  return known or type(failure) ~= "table" or failure.family ~= "handle"
end

--- Whether it has finished, well or not. Never waits.
function Request:done()
  if self.handle then
    local ended, outcome = pcall(capi.mv_request_test, self.handle)
    if ended and outcome == 0 then return false end
    if not ended then self.failure = outcome end
    self.handle = nil
  end
  return true
end

--- Waits and returns the call's result. A timeout, in seconds, that passes is an error, and leaves the call running.
function Request:wait(timeout)
  if self.handle then
    local ended, failure = pcall(capi.mv_request_wait, self.handle, values.milliseconds(timeout))
    if not ended then
      if alive(self) then error(failure, 0) end
      self.failure = failure
    end
    self.handle = nil
  end
  if self.failure then error(self.failure, 0) end
  return self.result and self.result()
end

--- Withdraws the call; an add may have been applied all the same.
function Request:cancel()
  if self.handle then
    capi.mv_request_cancel(self.handle)
    self.handle = nil
    self.failure = select(2, pcall(capi.raise, capi.MV_ECANCELED))
  end
end

return Request
