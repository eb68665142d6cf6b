--- A stand-in for the module `regress`, which tests in the style of torch-ipc and torch-distlearn need:
--
--     local test = require 'regress'
--     test {
--       testSum = function() test.mustBeTrue(1 + 1 == 2, 'arithmetic') end,
--     }
--
-- Runs the functions in the order of their names, reports each, and raises an error at the end if one has failed, which
-- makes the interpreter exit with an error.

local regress = {}

--- Raises an error unless the value is true.
---@param value any
---@param message? string
function regress.mustBeTrue(value, message)
  if value ~= true then error(message or ("expected true, got " .. tostring(value)), 2) end
end

--- Raises an error unless the value is false.
---@param value any
---@param message? string
function regress.mustBeFalse(value, message)
  if value ~= false then error(message or ("expected false, got " .. tostring(value)), 2) end
end

local function run(_, tests)
  local names, failed = {}, {}
  for name, test in pairs(tests) do
    if type(test) == "function" then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local passed, failure = xpcall(tests[name], function(raised)
      return type(raised) == "string" and debug.traceback(raised, 2) or tostring(raised)
    end)
    io.write(passed and "ok      " or "FAILED  ", name, "\n")
    if not passed then
      io.write(failure, "\n")
      failed[#failed + 1] = name
    end
  end
  io.write(("%d of %d passed\n"):format(#names - #failed, #names))
  if #failed > 0 then error("failed: " .. table.concat(failed, ", "), 0) end
end

return setmetatable(regress, {__call = run})
