--- torch.save and torch.load: reads and writes Torch's own files, binary or ascii, of nil, booleans, numbers, strings,
--- tables, storages, tensors and objects of classes. Internal.
--
-- Functions are neither written nor read: a file is data, and loading it must not run foreign code. In a file Torch's
-- `int` has four bytes and its `long` eight, both in the machine's byte order.

local class = require("torch.class")
local types = require("torch.types")
local strided, fail = types.strided, types.fail

local file = {}

local NIL, NUMBER, STRING, TABLE, OBJECT, BOOLEAN = 0, 1, 2, 3, 4, 5
local FUNCTIONS = {[6] = true, [7] = true, [8] = true}
local MOST = 2 ^ 40 -- bytes: the longest string or storage that is accepted from a file

-- ------------------------------------------------------------------ numbers as bytes, through a storage of one element

local cells = {}
for name, kind in pairs{int = types.int, long = types.long, double = types.double} do
  local cell = strided.storage(kind.dtype, 1)
  cells[name] = {cell = cell, size = #strided.bytes(cell)}
end

local function pack(name, value)
  local cell = cells[name].cell
  cell[1] = value
  return strided.bytes(cell)
end

local function unpack_bytes(name, bytes)
  local cell = cells[name].cell
  strided.set_bytes(cell, bytes)
  return cell[1]
end

-- ------------------------------------------------------------------ writing

local Writer = {}
Writer.__index = Writer

function Writer:put(text) self.pieces[#self.pieces + 1] = text end

-- A line of ascii; an empty text writes none.
function Writer:line(text)
  if text ~= "" then self:put(text .. "\n") end
end

function Writer:number(name, value)
  if not self.ascii then return self:put(pack(name, value)) end
  self:put((name == "double" and "%.17g\n" or "%.0f\n"):format(value))
end

function Writer:text(value)
  self:number("int", #value)
  if self.ascii then self:line(value) else self:put(value) end
end

function Writer:storage(storage)
  self:number("long", #storage)
  if not self.ascii then return self:put(strided.bytes(storage)) end
  local list = types.list(storage)
  local format = types.storage_kind(storage).is_integral and "%.0f" or "%.17g"
  for i, value in ipairs(list) do list[i] = format:format(value) end
  self:line(table.concat(list, " "))
end

function Writer:longs(list)
  if not self.ascii then
    for _, value in ipairs(list) do self:number("long", value) end
  else
    self:line(table.concat(list, " "))
  end
end

function Writer:tensor(tensor)
  local sizes, strides, offset = strided.sizes(tensor)
  self:number("int", #sizes)
  self:longs(sizes)
  self:longs(strides)
  self:number("long", offset)
  self:object(strided.storage_of(tensor))
end

-- A table's pairs, numbers in order first, so that equal arrays make equal files.
function Writer:pairs(object)
  local count = 0
  for _ in pairs(object) do count = count + 1 end
  self:number("int", count)
  for i = 1, #object do
    self:object(i)
    self:object(object[i])
  end
  for key, value in pairs(object) do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 or key > #object then
      self:object(key)
      self:object(value)
    end
  end
end

-- Writes the number of an object that may be referred to again; returns whether the object is new.
function Writer:reference(object)
  -- storage() returns a new value in each call: the address of the memory identifies a storage.
  local identity = types.storage_kind(object) and #object > 0 and strided.address(object) or object
  local known = self.known[identity]
  if not known then
    self.count = self.count + 1
    self.known[identity] = self.count
    self.kept[self.count] = object -- so that its address is not reused
  end
  self:number("int", known or self.count)
  return not known
end

function Writer:class_object(object, name)
  self:number("int", OBJECT)
  if not self:reference(object) then return end
  self:text("V 1")
  self:text(name)
  if types.kind(object) then return self:tensor(object) end
  if types.storage_kind(object) then return self:storage(object) end
  if type(object.write) == "function" then return object:write(self) end
  self:number("int", TABLE)
  self.count = self.count + 1
  self:number("int", self.count)
  self:pairs(object)
end

function Writer:object(value)
  local kind, name = type(value), types.typename(value)
  if name then
    self:class_object(value, name)
  elseif value == nil then
    self:number("int", NIL)
  elseif kind == "number" then
    self:number("int", NUMBER)
    self:number("double", value)
  elseif kind == "string" then
    self:number("int", STRING)
    self:text(value)
  elseif kind == "boolean" then
    self:number("int", BOOLEAN)
    self:number("int", value and 1 or 0)
  elseif kind == "table" then
    self:number("int", TABLE)
    if self:reference(value) then self:pairs(value) end
  else
    fail("a %s can't be written to a file", kind)
  end
end
Writer.writeObject = Writer.object

-- ------------------------------------------------------------------ reading

local Reader = {}
Reader.__index = Reader

function Reader:take(count)
  if count < 0 or self.at + count - 1 > #self.bytes then fail("%s ends too early, or is not a Torch file", self.name) end
  self.at = self.at + count
  return self.bytes:sub(self.at - count, self.at - 1)
end

local NOT_FINITE = {nan = 0 / 0, ["-nan"] = 0 / 0, inf = 1 / 0, ["-inf"] = -1 / 0}

function Reader:word()
  local _, last, word = self.bytes:find("^%s*([^%s]+)", self.at)
  local value = word and (tonumber(word) or NOT_FINITE[word])
  if not value then fail("%s: a number is expected, but none found", self.name) end
  self.at = last + 1
  return value
end

function Reader:number(name)
  if self.ascii then
    local value = self:word()
    self.at = self.at + 1 -- skips the end of the line
    return value
  end
  return unpack_bytes(name, self:take(cells[name].size))
end

function Reader:length(name)
  local length = self:number(name)
  if not (length >= 0 and length < MOST) then fail("%s has an invalid length: %s", self.name, tostring(length)) end
  return length
end

function Reader:text()
  local value = self:take(self:length("int"))
  if self.ascii and value ~= "" then self:take(1) end
  return value
end

function Reader:longs(count)
  local list = {}
  for i = 1, count do list[i] = self.ascii and self:word() or self:number("long") end
  if self.ascii and count > 0 then self.at = self.at + 1 end
  return list
end

function Reader:storage(kind)
  local count = self:length("long")
  local size = #strided.bytes(strided.storage(kind.dtype, 1))
  if count * (self.ascii and 2 or size) > #self.bytes + 2 then fail("%s ends too early", self.name) end
  local storage = strided.storage(kind.dtype, count)
  if not self.ascii then return strided.set_bytes(storage, self:take(count * size)) end
  for i, value in ipairs(self:longs(count)) do storage[i] = value end
  return storage
end

function Reader:tensor(kind, made)
  local dims = self:length("int")
  local sizes = self:longs(dims)
  local strides = self:longs(dims)
  local offset, storage = self:number("long"), self:object()
  if storage == nil then return made end
  if types.storage_kind(storage) ~= kind then fail("%s has a %s without its storage", self.name, kind.name) end
  local last = offset
  for d = 1, dims do last = last + (sizes[d] - 1) * strides[d] end
  if offset < 1 or dims > 0 and last > #storage then fail("%s has a tensor outside of its storage", self.name) end
  return strided.shape(made, storage, offset, sizes, strides)
end

function Reader:pairs(into)
  for _ = 1, self:length("int") do
    local key = self:object()
    local value = self:object()
    if key == nil or key ~= key then fail("%s has a table with an invalid key", self.name) end
    rawset(into, key, value)
  end
  return into
end

-- Registers an object under its number before its content is read, because the content may refer to it.
function Reader:remember(number, object)
  self.known[number] = object
  return object
end

function Reader:class_object()
  local number = self:number("int")
  if self.known[number] ~= nil then return self.known[number] end
  local name = self:text()
  if name:find("^V %d+$") then name = self:text() end -- files of the first versions have no version line
  local metatable = class.getmetatable(name)
  if not metatable then fail("%s has an object of the unknown class %s", self.name, name) end
  local kind = metatable.__kind
  if kind and kind.storage_metatable == metatable then return self:remember(number, self:storage(kind)) end
  if kind then return self:tensor(kind, self:remember(number, types.new(kind))) end
  local object = self:remember(number, class.factory(name)())
  if type(object.read) == "function" then
    object:read(self)
    return object
  end
  local fields = self:object()
  if type(fields) ~= "table" then fail("%s has a %s without fields", self.name, name) end
  for key, value in pairs(fields) do rawset(object, key, value) end
  return object
end

function Reader:object()
  local code = self:number("int")
  if code == NIL then return nil end
  if code == NUMBER then return self:number("double") end
  if code == STRING then return self:text() end
  if code == BOOLEAN then return self:number("int") == 1 end
  if code == OBJECT then return self:class_object() end
  if code == TABLE then
    local number = self:number("int")
    if self.known[number] ~= nil then return self.known[number] end
    return self:pairs(self:remember(number, {}))
  end
  if FUNCTIONS[code] then fail("%s has a function: functions are not loaded from files", self.name) end
  fail("%s is not a Torch file: unknown type code %s", self.name, tostring(code))
end
Reader.readObject = Reader.object

-- ------------------------------------------------------------------ whole files

local function check_format(format)
  if format ~= nil and format ~= "binary" and format ~= "ascii" then
    fail('the format must be "binary" or "ascii", not "%s"', tostring(format))
  end
  return format == "ascii"
end

--- An object as a string. format: "binary" (also nil) or "ascii"
function file.serialize(object, format)
  local writer = setmetatable({ascii = check_format(format), pieces = {}, known = {}, kept = {}, count = 0}, Writer)
  writer:object(object)
  return table.concat(writer.pieces)
end

function file.deserialize(bytes, format, name)
  if type(bytes) ~= "string" then fail("deserialize(): a string is expected, got %s", types.describe(bytes)) end
  local reader = {ascii = check_format(format), bytes = bytes, at = 1, known = {}, name = name or "the string"}
  return setmetatable(reader, Reader):object()
end

local function open(path, mode)
  local opened, why = io.open(path, mode)
  if not opened then fail("%s", why) end
  return opened
end

function file.save(path, object, format)
  local bytes = file.serialize(object, format) -- before the file is opened, so that an error leaves it unchanged
  local opened = open(path, "wb")
  local written, why = opened:write(bytes)
  local closed, why_not = opened:close()
  if not (written and closed) then fail("%s: %s", path, why or why_not) end
end

function file.load(path, format)
  local opened = open(path, "rb")
  local bytes, why = opened:read("*a")
  opened:close()
  if not bytes then fail("%s: %s", path, why) end
  return file.deserialize(bytes, format, path)
end

return file
