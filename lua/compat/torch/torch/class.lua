--- torch.class: classes with one parent, constructors and operators. Internal.

local types = require("torch.types")
local fail = types.fail

local class = {}
local metatables, parents = {}, {} -- by name

-- The metatable's operators, which a class defines as __add__, __tostring__ and so on.
local OPERATORS = {"add", "sub", "mul", "div", "mod", "pow", "unm", "concat", "len", "eq", "lt", "le", "call", "tostring"}

-- A field of the class or of its ancestors.
local function inherited(metatable, key)
  while metatable do
    local value = rawget(metatable, key)
    if value ~= nil then return value end
    metatable = parents[rawget(metatable, "__typename")]
  end
end

local function make_index(metatable)
  return function(self, key)
    local own = inherited(metatable, "__index__")
    if own then
      local value, found = own(self, key)
      if found or value ~= nil then return value end
    end
    return inherited(metatable, key)
  end
end

local function make_newindex(metatable)
  return function(self, key, value)
    local own = inherited(metatable, "__newindex__")
    if not own or own(self, key, value) == false then rawset(self, key, value) end
  end
end

local function operator(metatable, name)
  return function(a, b, ...)
    local run = inherited(metatable, "__" .. name .. "__")
    if run then return run(a, b, ...) end
    if name == "tostring" then return metatable.__typename end
    if name == "eq" then return rawequal(a, b) end
    if name == "len" then return 0 end
    fail("%s has no operator __%s__", metatable.__typename, name)
  end
end

-- The table that holds the last part of a name, and that part.
local function place_of(name, module)
  local holder = module or _G
  local path, last = name:match("^(.*)%.([^.]+)$")
  if module or not path then return holder, last or name end
  for part in path:gmatch("[^.]+") do
    holder = rawget(holder, part)
    if type(holder) ~= "table" then fail("class %s: the table %s that should hold it does not exist", name, path) end
  end
  return holder, last
end

-- Makes an object of a class and calls its __init.
local function construct(metatable, ...)
  local object = setmetatable({}, metatable)
  local init = inherited(metatable, "__init")
  if init then init(object, ...) end
  return object
end

--- class(name [, parent's name] [, table for the constructor]): returns the class and its parent.
function class.class(name, parent_name, module)
  if type(parent_name) == "table" then parent_name, module = nil, parent_name end
  if type(name) ~= "string" then fail("class(): a name is expected, got %s", types.describe(name)) end
  if metatables[name] or types.kinds[name] then fail("class %s has been already assigned a metatable", name) end
  local parent = parent_name and metatables[parent_name]
  if parent_name and not parent then fail("class %s: unknown parent class %s", name, tostring(parent_name)) end
  local holder, last = place_of(name, module)

  local metatable = {__typename = name, __version = 1}
  metatables[name], parents[name] = metatable, parent
  metatable.__index = make_index(metatable)
  metatable.__newindex = make_newindex(metatable)
  for _, operator_name in ipairs(OPERATORS) do metatable["__" .. operator_name] = operator(metatable, operator_name) end
  metatable.new = function(...) return construct(metatable, ...) end
  setmetatable(metatable, {__index = function(_, key) return parent and inherited(parent, key) end})
  rawset(holder, last, setmetatable({}, {
    __call = function(_, ...) return construct(metatable, ...) end,
    __index = metatable,
    __newindex = metatable,
    __constructs = name,
  }))
  return metatable, parent
end

--- A function that makes an object of a class without calling its __init.
function class.factory(name)
  local metatable = metatables[name]
  if metatable then return function() return setmetatable({}, metatable) end end
  return types.kinds[name] and function() return types.new(types.kinds[name]) end
end

function class.getmetatable(name)
  if metatables[name] then return metatables[name] end
  for _, kind in pairs(types.kinds) do
    if kind.name == name then return kind.metatable end
    if kind.storage_name == name then return kind.storage_metatable end
  end
end

class.typename = types.typename

--- typename(), or Lua's type().
function class.type(object) return types.typename(object) or type(object) end

--- Whether an object is of a class or of a class derived from it.
-- @param wanted the class, its constructor, or a string.find pattern of its name
function class.isTypeOf(object, wanted)
  local name = types.typename(object)
  if type(wanted) == "table" then
    local metatable = getmetatable(wanted)
    local exact = rawget(wanted, "__typename") or type(metatable) == "table" and rawget(metatable, "__constructs")
    while name and name ~= exact do name = parents[name] and parents[name].__typename end
    return name ~= nil
  end
  if type(wanted) ~= "string" then fail("isTypeOf(): a class or its name is expected, got %s", types.describe(wanted)) end
  while name do
    if name == wanted or name:find(wanted) then return true end
    name = parents[name] and parents[name].__typename
  end
  return false
end

return class
