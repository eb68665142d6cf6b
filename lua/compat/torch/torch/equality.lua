--- Deep equality within a tolerance, with a description of the difference, for the Tester. Internal.

local types = require("torch.types")

local equality = {}

-- Compares the greatest difference between two tensors with equal numbers of elements to the tolerance.
local function tensors_differ(what, a, b, tolerance, negated)
  local difference = a:double():clone():add(-1, b:double()):abs():max()
  local is_equal = difference <= tolerance
  if is_equal ~= negated then return true end
  return false, ("%s%s violation: max diff=%s, tolerance=%s"):format(what, negated and "NE(==)" or "EQ(==)",
    tostring(difference), tostring(tolerance))
end

--- Whether two tensors are equal within the tolerance, or, negated, differ; and a description of the failure.
-- @param any_dimensions compares only the numbers of elements, not the shapes
function equality.of_tensors(a, b, tolerance, negated, any_dimensions)
  if not any_dimensions and a:dim() ~= b:dim() then return negated, "The tensors have different dimensions" end
  if a:type() ~= b:type() then return negated, "The tensors have different types" end
  if a:dim() == 0 and b:dim() == 0 then return not negated, "Both tensors are empty" end
  local same_size = any_dimensions and a:nElement() == b:nElement() or a:isSameSizeAs(b)
  if not same_size then return negated, "The tensors have different sizes" end
  return tensors_differ("Tensor", a, b, tolerance, negated)
end

local function of_storages(a, b, tolerance, negated)
  if #a ~= #b then return negated, "The storages have different sizes" end
  local kind = types.storage_kind(a)
  if kind ~= types.storage_kind(b) then return negated, "The storages have different types" end
  if #a == 0 then return not negated, "Both storages are empty" end
  return tensors_differ("Storage", kind.metatable.new(a), kind.metatable.new(b), tolerance, negated)
end

local function of_numbers(a, b, tolerance, negated)
  if (math.abs(a - b) <= tolerance or a == b) ~= negated then return true end
  local text = ("%s failed: %s %s %s"):format(negated and "NE" or "EQ", tostring(a), negated and "==" or "~=", tostring(b))
  return false, tolerance > 0 and ("%s with tolerance=%s"):format(text, tostring(tolerance)) or text
end

local function of_others(a, b, negated)
  if (a == b) ~= negated then return true end
  return false, ("%s failed: %s (%s) %s %s (%s)"):format(negated and "NE" or "EQ", tostring(a), type(a),
    negated and "==" or "~=", tostring(b), type(b))
end

-- The first difference of two tables, breadth first; nil if there is none.
local function difference_of_tables(a, b, tolerance)
  local pairs_left, done = {{a, b, ""}}, 0
  while done < #pairs_left do
    done = done + 1
    local first, second, path = pairs_left[done][1], pairs_left[done][2], pairs_left[done][3]
    for key, value in pairs(first) do
      local place = path .. tostring(key)
      if second[key] == nil then
        return ("Entry %s missing in second table (is %s in first)"):format(place, tostring(value))
      elseif type(value) == "table" and type(second[key]) == "table" then
        pairs_left[#pairs_left + 1] = {value, second[key], place .. "."}
      else
        local is_equal, why = equality.of(value, second[key], tolerance, false)
        if not is_equal then return ("At table location %s: %s"):format(place, why) end
      end
    end
    for key, value in pairs(second) do
      if first[key] == nil then
        return ("Entry %s missing in first table (is %s in second)"):format(path .. tostring(key), tostring(value))
      end
    end
  end
end

--- Whether two values are equal within the tolerance, or, negated, differ; and a description of the failure.
function equality.of(a, b, tolerance, negated)
  if type(a) ~= type(b) then
    return negated, ("EQ failed: values have different types (first: %s, second: %s)"):format(type(a), type(b))
  elseif type(a) == "number" then
    return of_numbers(a, b, tolerance, negated)
  elseif type(a) == "table" then
    local difference = difference_of_tables(a, b, tolerance)
    if difference then return negated, difference end
    return not negated, "The tables are equal"
  elseif types.kind(a) and types.kind(b) then
    return equality.of_tensors(a, b, tolerance, negated)
  elseif types.storage_kind(a) and types.storage_kind(b) then
    return of_storages(a, b, tolerance, negated)
  end
  return of_others(a, b, negated)
end

return equality
