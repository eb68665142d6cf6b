--- Converts tensors and storages to text in Torch's format. Internal.

local types = require("torch.types")
local strided = types.strided

local WIDTH = 80 -- columns of a line

local floor, ceil = math.floor, math.ceil

-- The number of digits before the decimal point; 1 for 0.
local function exponent(value)
  if value == 0 then return 1 end
  if value == math.huge then return value end
  return tonumber(("%.15e"):format(value):match("e(.*)$")) + 1
end

-- The least and greatest absolute values, and whether all values are whole. If one is NaN, both are NaN.
local function survey(values)
  local least, most, whole = math.huge, 0, true
  for _, value in ipairs(values) do
    local size = math.abs(value)
    if value ~= value then return value, value, false end
    if size ~= math.huge and value ~= ceil(value) then whole = false end
    least, most = math.min(least, size), math.max(most, size)
  end
  return least, most, whole
end

-- One format for all numbers: the format, a common scale factor, and the width.
local function format_of(values)
  if #values == 0 then return "", nil, 0 end
  local least, most, whole = survey(values)
  if least ~= least then return "%f", nil, 9 end
  local from, to = exponent(least), exponent(most)
  if whole then
    if to > 9 then return "%11.4e", nil, 11 end
    return ("%%%dd"):format(to + 1), nil, to + 1
  elseif to - from > 4 then
    local width = (to > 99 or math.abs(from) > 99) and 12 or 11
    return ("%%%d.4e"):format(width), nil, width
  elseif to > 5 or to < 0 then
    return "%7.4f", 10 ^ (to - 1), 7
  end
  local width = to == 0 and 7 or to + 6
  return ("%%%d.4f"):format(width), nil, width
end

local function write_scale(lines, scale, behind)
  if scale then lines[#lines + 1] = ("%g *\n%s"):format(scale, behind) end
end

local function write_column(lines, values)
  local format, scale = format_of(values)
  write_scale(lines, scale, "")
  for _, value in ipairs(values) do lines[#lines + 1] = format:format(value / (scale or 1)) .. "\n" end
end

-- Writes a matrix in as many blocks of columns as the line width requires. `shape` is the common format.
local function write_matrix(lines, matrix, shape, indent)
  local format, scale, width = shape[1], shape[2], shape[3]
  local rows, columns = #matrix, #matrix[1]
  local each = math.max(1, floor((WIDTH - #indent) / (width + 1)))
  local margin = scale and indent .. " " or indent
  lines[#lines + 1] = indent
  for first = 1, columns, each do
    local last = math.min(first + each - 1, columns)
    if each < columns then
      if first ~= 1 then lines[#lines + 1] = "\n" end
      lines[#lines + 1] = ("Columns %d to %d\n%s"):format(first, last, indent)
    end
    write_scale(lines, scale, " " .. indent)
    for r = 1, rows do
      local row = {}
      for c = first, last do row[#row + 1] = format:format(matrix[r][c] / (scale or 1)) end
      lines[#lines + 1] = table.concat(row, " ") .. "\n" .. (r < rows and margin or "")
    end
  end
end

-- Writes the matrices of the last two dimensions; the first dimension varies fastest.
local function write_blocks(lines, tensor, shape)
  local sizes = strided.sizes(tensor)
  local at, outer = {}, #sizes - 2
  for d = 1, outer do at[d] = 1 end
  while true do
    if #lines > 0 then lines[#lines + 1] = "\n" end
    lines[#lines + 1] = ("(%s,.,.) = \n"):format(table.concat(at, ","))
    local part = tensor
    for d = 1, outer do part = strided.select(part, 1, at[d]) end
    write_matrix(lines, part:totable(), shape, " ")
    local d = 1
    while d <= outer and at[d] == sizes[d] do
      at[d] = 1
      d = d + 1
    end
    if d > outer then return end
    at[d] = at[d] + 1
  end
end

function types.methods:totable()
  local sizes = strided.sizes(self)
  local list = {}
  if #sizes == 1 then
    strided.apply(function(value) list[#list + 1] = value end, self)
  else
    for i = 1, sizes[1] or 0 do list[i] = strided.select(self, 1, i):totable() end
  end
  return list
end

function types.methods:__tostring()
  local name, sizes, lines = types.typename(self), strided.sizes(self), {}
  if #sizes == 0 then return ("[%s with no dimension]\n"):format(name) end
  if #sizes == 1 then
    write_column(lines, self:totable())
  elseif #sizes == 2 then
    local rows, all = self:totable(), {}
    for _, row in ipairs(rows) do
      for _, value in ipairs(row) do all[#all + 1] = value end
    end
    write_matrix(lines, rows, {format_of(all)}, "")
  else
    write_blocks(lines, self, {format_of(self:contiguous():view(strided.elements(self)):totable())})
  end
  lines[#lines + 1] = ("[%s of size %s]\n"):format(name, table.concat(sizes, "x"))
  return table.concat(lines)
end

function types.storage_methods:__tostring()
  local lines, values = {"\n"}, types.list(self)
  write_column(lines, values)
  lines[#lines + 1] = ("[%s of size %d]\n"):format(types.typename(self), #values)
  return table.concat(lines)
end
