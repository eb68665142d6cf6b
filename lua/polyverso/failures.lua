--- What the other processes hear of an error in this one. Internal.

local capi = require("polyverso.capi")

local failures = {}

--- An error as one line.
function failures.one_line(failure)
  local text = tostring(failure):gsub("\nstack traceback:.*", "") -- which the interpreter `lua` has added
  return (text:gsub("%z", " "):gsub("%s+", " "):sub(1, 500))
end

--- Gives the error of a callback to the errors that it causes, also in other processes. Returns the status that the
-- callback ends with.
function failures.report(failure)
  pcall(capi.mv_callback_error, failures.one_line(failure)) -- without memory, the errors have the status only
  return type(failure) == "table" and type(failure.code) == "number" and failure.code < 0 and failure.code or capi.MV_EINVAL
end

local function try(callback, ...) return pcall(callback, ...) end

--- Calls a function of the program, and returns what pcall() returns. It runs in a coroutine of its own, to refuse a yield:
-- what waits for the function's end would stay locked until the caller's coroutine is resumed, and for ever if that is
-- collected.
-- @param what  names the function in the error
function failures.run(what, callback, ...)
  local running = coroutine.create(try)
  local resumed, ended, raised = coroutine.resume(running, callback, ...)
  if coroutine.status(running) ~= "dead" then return pcall(capi.raise, capi.MV_EINVAL, what .. " must not yield") end
  if not resumed then return false, ended end
  return ended, raised
end

return failures
