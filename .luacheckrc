-- For luacheck, which `make lint` runs on the Lua sources.
std = "max" -- Lua 5.1 to 5.4 and LuaJIT: the sources are the same for all
max_line_length = 150
max_comment_line_length = 150
ignore = {"212/self"} -- a method may ignore its object
-- Scripts written for Torch have its names as globals, and its stand-in defines them.
for _, folder in ipairs{"bench", "examples", "lua/compat", "tests"} do files[folder] = {globals = {"torch", "nn", "tester"}} end
-- Tests replace io.write to see what is printed, and let variables go to see what is collected.
files["tests/lua"] = {globals = {"torch", "nn", "tester", "io"}}
files["**/spec/*.lua"] = {std = "max+busted", globals = {"io"}, ignore = {"311/memory", "311/t"}}
-- Functions that run in another Lua state get their variables as parameters, under the same names.
files["lua/compat/ipc/spec"] = {ignore = {"43."}}
