--- A reader for the JSON texts that the library writes: objects and arrays become tables, null becomes nil.

local ESCAPES = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/"}
local WORDS = {["true"] = true, ["false"] = false}
local read_value

local function skip(text, at) return text:find("[^ \t\r\n]", at) or #text + 1 end

local function refuse(text, at) error(("invalid JSON at %q"):format(text:sub(at, at + 20)), 0) end

--- Encodes a character of the basic multilingual plane in UTF-8; Lua 5.1 has no function for that.
local function utf8_of(code)
  if code < 0x80 then return string.char(code) end
  if code < 0x800 then return string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64) end
  return string.char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

--- Each of the following readers starts at its value's first character, and returns it and the position after it.
local function read_string(text, at)
  local parts = {}
  at = at + 1
  while true do
    local plain, stop = text:match('^([^"\\]*)()', at)
    parts[#parts + 1] = plain
    local what = text:sub(stop, stop)
    if what == '"' then return table.concat(parts), stop + 1 end
    local digits = text:match("^\\u(%x%x%x%x)", stop)
    local escaped = digits and utf8_of(tonumber(digits, 16)) or ESCAPES[text:match("^\\(.)", stop)]
    if not escaped then refuse(text, stop) end
    parts[#parts + 1] = escaped
    at = stop + (digits and 6 or 2)
  end
end

--- Reads the members between brackets; `read_member` puts one into the table and returns the position after it.
local function read_members(text, at, closing, read_member)
  local members = {}
  at = skip(text, at + 1)
  if text:sub(at, at) == closing then return members, at + 1 end
  while true do
    at = skip(text, read_member(members, at))
    local what = text:sub(at, at)
    if what == closing then return members, at + 1 end
    if what ~= "," then refuse(text, at) end
    at = skip(text, at + 1)
  end
end

local function read_object(text, at)
  return read_members(text, at, "}", function(members, from)
    if text:sub(from, from) ~= '"' then refuse(text, from) end
    local key, behind = read_string(text, from)
    behind = skip(text, behind)
    if text:sub(behind, behind) ~= ":" then refuse(text, behind) end
    members[key], behind = read_value(text, skip(text, behind + 1))
    return behind
  end)
end

local function read_array(text, at)
  local count = 0
  return read_members(text, at, "]", function(members, from)
    local behind
    count = count + 1
    members[count], behind = read_value(text, from)
    return behind
  end)
end

function read_value(text, at)
  local first = text:sub(at, at)
  if first == "{" then return read_object(text, at) end
  if first == "[" then return read_array(text, at) end
  if first == '"' then return read_string(text, at) end
  local word = text:match("^[%w+.-]+", at) or refuse(text, at)
  if WORDS[word] == nil and word ~= "null" and not tonumber(word) then refuse(text, at) end
  if word == "null" then return nil, at + #word end
  if WORDS[word] ~= nil then return WORDS[word], at + #word end
  return tonumber(word), at + #word
end

return {
  decode = function(text)
    local value, behind = read_value(text, skip(text, 1))
    if skip(text, behind) <= #text then refuse(text, behind) end
    return value
  end,
}
