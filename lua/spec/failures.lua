-- What calls raise that must fail.

local failures = {}

--- The error of the results of a pcall(), which must have failed. The error names the line of that pcall().
function failures.from(ended, failure)
  if ended then error("nothing was raised", 2) end
  return failure
end

--- Calls f(...), which must raise, and returns what it raised.
function failures.of(f, ...) return failures.from(pcall(f, ...)) end

return failures
