--- Objects with a handle of the C API: what their methods check before each call, and what tostring() says of them.
-- Internal.

local capi = require("polyverso.capi")

local objects = {}

-- The lives of the running nodes, by handle: tables shared by a node and all that was made with it. Fields:
--   ended   nil while the node runs, then "after shutdown" or "after abort"
--   tables  the number of open handles for each table's name
local lives = {}

function objects.life_of(node)
  local life = lives[node] or {tables = {}}
  lives[node] = life
  return life
end

--- Called after a shutdown or an abort: ends the node's life, unless other calls of init() still need the node.
function objects.shut(node, why)
  if not lives[node] or pcall(capi.mv_rank, node) then return end
  lives[node].ended = why or "after shutdown"
  lives[node] = nil
end

--- A node's shutdown() at the end of a block. A child that was forked inside of the block has nothing to end: its
-- parent has the node.
function objects.end_block(node)
  local ended, failure = pcall(capi.mv_shutdown, node.handle)
  if ended then return objects.shut(node.handle) end
  if failure.code ~= capi.MV_EFORK then capi.raise_again(failure) end
end

--- Why an object can't be used any more; nil if it can.
function objects.end_of(self)
  local life = self.life
  return self.ended or life and life.ended
end

local function refuse_call(kind, class, name, self)
  if type(self) ~= "table" or getmetatable(self) ~= class and type(self.handle) ~= "number" then
    local given = type(self) == "nil" and "nothing" or type(self) == "table" and "a plain Lua table" or "a " .. type(self)
    local message = '%s:%s() was called on %s, not on a %s: methods are called with a colon, %s:%s(...), not %s.%s(...)'
    capi.raise(capi.MV_EINVAL, message:format(kind, name, given, kind, kind, name, kind, name))
  end
  local what = class.described and class.described(self) or "this " .. kind
  capi.raise(capi.MV_EHANDLE, ("%s: %s:%s() %s"):format(what, kind, name, objects.end_of(self)))
end

local function checked(kind, class, name, method, works_ended)
  return function(self, ...)
    if type(self) ~= "table" or getmetatable(self) ~= class and type(self.handle) ~= "number" then refuse_call(kind, class, name, self) end
    if not works_ended and objects.end_of(self) then refuse_call(kind, class, name, self) end
    return method(self, ...)
  end
end

--- Makes all methods of a class check their object: that it is one, and that it is not closed.
-- @param kind  the name for messages, such as "table"
-- @param works_ended  a set of the methods that may be called on a closed object
function objects.finish(kind, class, works_ended)
  local all = {}
  for name, method in pairs(class) do
    if type(method) == "function" and not name:find("^__") and name ~= "new" and name ~= "described" then all[name] = method end
  end
  -- The end of a block with `local object <close> = ...`, in Lua 5.4.
  local close = class.close or class.free
  class.__close = class.__close or close and function(self) close(self) end
  for name, method in pairs(all) do class[name] = checked(kind, class, name, method, works_ended and works_ended[name]) end
  return class
end

--- The text for tostring(): <polyverso.Kind first, second>, with what has ended the object.
function objects.text(self, kind, ...)
  local words = {}
  for i = 1, select("#", ...) do words[#words + 1] = (select(i, ...)) or nil end
  words[#words + 1] = objects.end_of(self) or nil
  return ("<polyverso.%s %s>"):format(kind, table.concat(words, ", "))
end

return objects
