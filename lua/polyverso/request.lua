--- An unfinished call: a method of a table or node with async = true returns it. A dropped request continues. Its
-- outcome is lost, except for the error of an add, which the table's next call, barrier() or shutdown() raises.

local capi = require("polyverso.capi")
local objects = require("polyverso.objects")
local values = require("polyverso.values")

---@class polyverso.Request
---@field handle integer? the mv_request; nil once the call has finished
local Request = {}
Request.__index = Request

--- For methods with async: the object for a handle of the C API.
---@param handle integer an mv_request
---@param result? function returns the finished call's result; nil if it has none
---@param call? string what the request does, for messages: "node:barrier"; "read" with its table
---@param table? polyverso.Table|polyverso.Group|table
---@return polyverso.Request
function Request.new(handle, result, call, table)
  local self = setmetatable({handle = handle, result = result, call = call, table = table, life = table and table.life}, Request)
  if newproxy then self.owner = values.owner(function() self:__gc() end) end
  return self
end

--- Lua 5.1 has no finalizers for tables; the value of values.owner() has one.
function Request:__gc()
  if self.handle then pcall(capi.mv_request_release, self.handle) end -- fails after a shutdown, or in a forked child
end

-- Whether the request exists: after a wait that times out it does, but its own error releases it.
local function alive(self)
  local known, failure = pcall(capi.mv_request_error, self.handle)
  return known or type(failure) ~= "table" or failure.family ~= "handle"
end

-- The error of a request that the node's shutdown has ended, instead of one that names a number.
local function explained(self, failure)
  local why = objects.end_of(self)
  if not why or type(failure) ~= "table" or failure.family ~= "handle" then return failure end
  return select(2, pcall(capi.raise, capi.MV_EHANDLE, ("%s: request:wait() %s"):format(self:described(), why)))
end

--- Whether the call has finished, successfully or not. Never waits.
---@return boolean
function Request:done()
  if self.handle then
    local ended, outcome = pcall(capi.mv_request_test, self.handle)
    if ended and outcome == 0 then return false end
    if not ended then self.failure = explained(self, outcome) end
    self.handle = nil
  end
  return true
end

--- Waits, and returns the call's result. After `timeout` seconds it raises an error, and the call continues.
---@param timeout? number seconds
---@return any ... the call's result
function Request:wait(timeout)
  if self.handle then
    local ended, failure = pcall(capi.mv_request_wait, self.handle, values.milliseconds(timeout))
    if not ended then
      if alive(self) then capi.raise_again(failure) end
      self.failure = explained(self, failure)
    end
    self.handle = nil
  end
  if self.failure then capi.raise_again(self.failure) end
  return self.result and self.result()
end

--- Withdraws the call; an add may have been applied nevertheless.
function Request:cancel()
  if self.handle then
    capi.mv_request_cancel(self.handle)
    self.handle = nil
    self.failure = select(2, pcall(capi.raise, capi.MV_ECANCELED))
  end
end

--- What the request does: node:barrier, or read of table "weights".
---@return string
function Request:described()
  local call = self.call or "call"
  return self.table and call .. " of " .. self.table:described() or call
end

--- <polyverso.Request read of table "weights", pending>
function Request:__tostring()
  local state = self.failure and "failed" or self:done() and (self.failure and "failed" or "done") or "pending"
  return ("<polyverso.Request %s, %s>"):format(self:described(), state)
end

return objects.finish("request", Request, {done = true, wait = true, cancel = true})
