-- Compares the annotations in a module's source with its functions: one @param for each parameter, @return for a result.
-- Functions that are made in loops have a @field of their class instead, constructors in tables a @type.

local annotations = {}

local function lines_of(name)
  local lines, file = {}, nil
  for pattern in package.path:gmatch("[^;]+") do file = file or io.open((pattern:gsub("%?", (name:gsub("%.", "/"))))) end
  for line in file:lines() do lines[#lines + 1] = line end
  file:close()
  return lines
end

-- The comment above a line.
local function comment_above(lines, at)
  local first = at
  while first > 1 and lines[first - 1]:find("^%s*%-%-%-") do first = first - 1 end
  return table.concat(lines, "\n", first, at - 1)
end

-- Whether the function that begins at this line returns a value in one of its own lines.
local function returns_value(lines, at)
  local indent = lines[at]:match("^%s*")
  local body = lines[at]:match("%)%s+(.*)%s+end%s*$")
  if body then return body:find("%f[%w]return%s+%S") ~= nil end
  for i = at + 1, #lines do
    if lines[i]:find("^" .. indent .. "end") then return false end
    if lines[i]:find("^" .. indent .. "  return%s+%S") then return true end
  end
end

-- What is wrong with the annotations of a module's source; `names` gets the names that have some.
local function source_complaints(module, names)
  local lines, found = lines_of(module), {}
  local function complain(...) found[#found + 1] = ("%s: %s"):format(module, (...):format(select(2, ...))) end
  for i, line in ipairs(lines) do
    local field = line:match("^%-%-%-@field (%w+_?[%w_]*) fun%(")
    if field then names[field] = true end
    local entry = line:match("^%s*(%w[%w_]*) = ") or line:match("^%w+%.([%w_]+) = ")
    if entry and comment_above(lines, i):find("@type fun%(") or line:find("= Tensor%.") then
      for name in line:gmatch("([%w_]+) = ") do names[name] = true end
    end
    local name, parameters = line:match("^function [%w_]+[.:]([%w_]+)%((.-)%)")
    if not name then name, parameters = line:match("^%s*([%w_]+) = function%((.-)%)") end
    if not name and line:find("^local function status") then name, parameters = line:match("function ([%w_]+)%((.-)%)") end
    local comment = comment_above(lines, i)
    local is_public = name and (line:find("^function") or comment ~= "") and not name:find("^__") and not comment:find("@type fun%(")
    if is_public then
      names[name] = true
      if comment == "" then complain("%s() has no comment", name) end
      for parameter in parameters:gmatch("[%w_.]+") do
        if parameter ~= "self" and not comment:find("@param " .. parameter:gsub("%.", "%%.") .. "%??%s") then
          complain("%s(): no @param %s", name, parameter)
        end
      end
      if returns_value(lines, i) and not comment:find("@return", 1, true) then complain("%s(): no @return", name) end
    end
  end
  return found
end

--- What is wrong with the annotations of a module, whose functions are those of `tables`.
function annotations.complaints(module, tables)
  local names = {}
  local all = source_complaints(module, names)
  for _, functions in ipairs(tables) do
    for name, value in pairs(functions) do
      -- polyverso.h describes the functions of C.
      local is_public = type(value) == "function" and not name:find("^__") and not name:find("^[mk]v_") and name ~= "closes_with"
      if is_public and not names[name] then all[#all + 1] = ("%s: %s() has no annotations"):format(module, name) end
    end
  end
  table.sort(all)
  return all
end

return annotations
