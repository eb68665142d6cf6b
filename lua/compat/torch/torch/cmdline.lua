--- torch.CmdLine: a parser for the options and arguments of a script. Internal.
--
--     cmd = torch.CmdLine()
--     cmd:text('Trains a model')
--     cmd:argument('data', 'the folder of the data')
--     cmd:option('-rate', 0.1, 'learning rate')      -- a number, because its default is one
--     cmd:option('--verbose', false, 'say more')     -- a flag: negates the default
--     opt = cmd:parse(arg)                           -- opt.data, opt.rate, opt.verbose

local class = require("torch.class")
local types = require("torch.types")
local fail = types.fail

local module = {}
local CmdLine = class.class("torch.CmdLine", nil, module)

-- The key of an option in the result: its name without leading dashes.
local function key_of(name) return (name:gsub("^%-+", "")) end

function CmdLine:__init(argseparator, keyseparator)
  self.argseparator, self.keyseparator = argseparator or ",", keyseparator or "="
  self.entries, self.options, self.arguments = {}, {}, {}
end

--- Makes a later log() write print()'s output only to its file.
function CmdLine:silent() self.is_silent = true end

--- Adds a line to the help.
function CmdLine:text(line) self.entries[#self.entries + 1] = {text = line or ""} end

function CmdLine:option(name, default, help)
  if type(name) ~= "string" or not name:find("^%-+[^%-]") then fail("option(): the name must be like -rate, not %s", tostring(name)) end
  if default == nil then fail("option(): %s has no default", name) end
  if self.options[name] then fail("option(): %s is already defined", name) end
  local entry = {name = name, key = key_of(name), default = default, help = help}
  self.entries[#self.entries + 1], self.options[name] = entry, entry
end

--- @param typename "number" if the argument is a number
function CmdLine:argument(name, help, typename)
  local entry = {key = name, help = help, typename = typename}
  self.entries[#self.entries + 1], self.arguments[#self.arguments + 1] = entry, entry
end

function CmdLine:help(arguments)
  local usage = {("Usage: %s [options]"):format(arguments and arguments[0] or "script")}
  local lines, width = {}, 0
  for _, entry in ipairs(self.arguments) do usage[#usage + 1] = ("<%s>"):format(entry.key) end
  for _, entry in ipairs(self.entries) do
    if not entry.text then width = math.max(width, #(entry.name or entry.key) + 2) end
  end
  for _, entry in ipairs(self.entries) do
    local default = entry.name and (" [%s]"):format(tostring(entry.default)) or ""
    local name = entry.name or ("<%s>"):format(entry.key or "")
    lines[#lines + 1] = entry.text or ("  %-" .. width .. "s %s%s"):format(name, entry.help or "", default)
  end
  print(table.concat(usage, " ") .. "\n" .. table.concat(lines, "\n"))
end

local function refuse(self, ...)
  self:help()
  fail(...)
end

-- An option's value, of its default's type, and whether it consumed the word.
local function value_of(self, entry, word)
  if type(entry.default) == "boolean" then return not entry.default, false end
  if word == nil then refuse(self, "option %s needs a value", entry.name) end
  if type(entry.default) ~= "number" then return word, true end
  local value = tonumber(word)
  if not value then refuse(self, 'option %s is "%s": a number is expected', entry.name, word) end
  return value, true
end

--- Parses the words of a command line: returns the options and arguments, with defaults for those that are missing.
function CmdLine:parse(words)
  local values, given = {}, 0
  for _, entry in pairs(self.options) do values[entry.key] = entry.default end
  local i = 1
  while i <= #words do
    local word = words[i]
    local entry = self.options[word]
    if word == "-h" or word == "-help" or word == "--help" then
      self:help(words)
      os.exit(0)
    elseif entry then
      local taken
      values[entry.key], taken = value_of(self, entry, words[i + 1])
      if taken then i = i + 1 end
    else
      given = given + 1
      entry = self.arguments[given]
      if not entry then refuse(self, 'invalid argument: "%s"', word) end
      values[entry.key] = entry.typename == "number" and tonumber(word) or word
    end
    i = i + 1
  end
  if given < #self.arguments then refuse(self, "argument <%s> is missing", self.arguments[given + 1].key) end
  return values
end

--- A name for a run, made of the values that differ from the defaults: prefix,rate=0.2. Keys in `ignore` are left out.
function CmdLine:string(prefix, values, ignore)
  local parts = {}
  for _, entry in pairs(self.options) do
    local value = values[entry.key]
    if value ~= entry.default and not (ignore and ignore[entry.key]) then
      parts[#parts + 1] = entry.key .. self.keyseparator .. tostring(value)
    end
  end
  table.sort(parts)
  local name = table.concat(parts, self.argseparator)
  return name == "" and prefix or prefix .. self.argseparator .. name
end

--- Copies the output of print() to an open file, or to a file of that name; writes the values first.
function CmdLine:log(target, values)
  local file, why = target, nil
  if type(target) == "string" then file, why = io.open(target, "w") end
  if not file then fail("log(): %s", tostring(why)) end
  local print_before, silent = print, self.is_silent
  function _G.print(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    if not silent then print_before(...) end
    file:write(table.concat(words, "\t"), "\n")
    file:flush()
  end
  local keys = {}
  for key in pairs(values or {}) do keys[#keys + 1] = key end
  table.sort(keys)
  print("[program started on " .. os.date() .. "]")
  for _, key in ipairs(keys) do print(key, values[key]) end
end

return module.CmdLine
