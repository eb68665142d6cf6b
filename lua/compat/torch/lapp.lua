--- The global `lapp`, which Torch's interpreter `th` gives to scripts: command lines parsed by their own help text.
--
--     luajit -l lapp train.lua --rate 0.1
--
--     local options = lapp [[
--     Trains a model.
--        -r,--rate    (default 0.01)   the learning rate
--        --steps      (number)         how many steps; it must be given
--        --verbose                     a flag
--        <file>       (string)         an argument without a name
--     ]]
--     print(options.rate, options.steps, options.verbose, options.file)
--
-- This is Penlight's pl.lapp if that is installed, otherwise a stand-in with options, flags, arguments, their defaults,
-- and the types string and number.

local has_penlight, installed = pcall(require, "pl.lapp")
if has_penlight then
  _G.lapp = installed
  return installed
end

local lapp = {}

--- Prints the message and the help text, and ends the program.
---@param message string
function lapp.error(message)
  io.stderr:write(("%s: %s\n\n%s\n"):format(arg and arg[0] or "lapp", message, lapp.usage or ""))
  os.exit(1)
end

-- The type and the default in "(default 0.01) the learning rate" or "(number) steps"; a flag has neither.
local function described(rest)
  local inside = rest:match("^%s*%((.-)%)")
  if not inside then return "flag", false end
  local value = inside:match("^default%s+(.*)$") or inside:match("^%w+%s+default%s+(.*)$")
  if not value then
    if inside == "string" or inside == "number" then return inside end
    error(('lapp: the type "%s" needs Penlight: string, number and (default VALUE) are supported'):format(inside), 4)
  end
  value = value:gsub("^(['\"])(.*)%1$", "%2")
  local as_number = tonumber(value)
  if value == "true" or value == "false" then return "flag", value == "true" end
  return as_number and "number" or "string", as_number or value
end

-- The options by all their names, and the arguments without names, in their order.
local function parse_help(text)
  local options, arguments = {}, {}
  for line in text:gmatch("[^\n]+") do
    local short, long, rest = line:match("^%s*%-(%w),?%s*%-%-([%w_%-]+)(.*)$")
    if not short then long, rest = line:match("^%s*%-%-([%w_%-]+)(.*)$") end
    if not long then short, rest = line:match("^%s*%-(%w)(.*)$") end
    local argument, behind = line:match("^%s*<([%w_%-]+)>(.*)$")
    if argument then
      local kind, default = described(behind)
      arguments[#arguments + 1] = {key = argument:gsub("%-", "_"), kind = kind == "flag" and "string" or kind, default = default or nil}
    elseif long or short then
      local kind, default = described(rest)
      local option = {key = (long or short):gsub("%-", "_"), kind = kind, default = default, name = (long and "--" or "-") .. (long or short)}
      options[#options + 1] = option
      if long then options["--" .. long] = option end
      if short then options["-" .. short] = option end
    end
  end
  return options, arguments
end

local function converted(entry, word)
  if entry.kind ~= "number" then return word end
  return tonumber(word) or lapp.error(("%s must be a number, not \"%s\""):format(entry.name or entry.key, word))
end

-- The words of a command line as values by name; more arguments than the help text has, by number.
local function parse_words(words, options, arguments)
  local values, given, i = {}, 0, 1
  while words[i] do
    local word, value = words[i], nil
    if options[word:match("^(%-%-[^=]+)=")] then word, value = word:match("^(%-%-[^=]+)=(.*)$") end
    local option = options[word]
    if not option and (word == "--help" or word == "-h") then
      print(lapp.usage)
      os.exit(0)
    elseif option and option.kind == "flag" then
      values[option.key] = not option.default
    elseif option then
      if value == nil then i, value = i + 1, words[i + 1] end
      if value == nil then lapp.error(option.name .. " needs a value") end
      values[option.key] = converted(option, value)
    elseif word:find("^%-%D") then
      lapp.error(("unknown option \"%s\""):format(word))
    else
      given = given + 1
      local entry = arguments[given]
      if entry then values[entry.key] = converted(entry, word) else values[#values + 1] = word end
    end
    i = i + 1
  end
  return values
end

--- The values of a command line, by default that of the script, as its help text describes them.
---@param text string the help text
---@param words? string[] the command line
---@return table<string|integer, any> values by name
function lapp.process_options_string(text, words)
  lapp.usage = text
  local options, arguments = parse_help(text)
  local values = parse_words(words or arg or {}, options, arguments)
  for _, list in ipairs{options, arguments} do
    for _, entry in ipairs(list) do
      if values[entry.key] == nil then values[entry.key] = entry.default end
      if values[entry.key] == nil then lapp.error(("%s is missing"):format(entry.name or "<" .. entry.key .. ">")) end
    end
  end
  return values
end

_G.lapp = setmetatable(lapp, {__call = function(_, text, words) return lapp.process_options_string(text, words) end})
return lapp
