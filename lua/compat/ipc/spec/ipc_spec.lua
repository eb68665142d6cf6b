-- libipc: threads, queues, servers and clients, used as in torch-ipc's scripts. Runs under Lua 5.1, LuaJIT and 5.4.

require("torch")
local ipc = require("libipc")
local native = require("polyverso.ipc")

-- Runs serve(server) and, in `count` threads, each(client, extra, id); returns the threads' results.
local function with_clients(count, serve, each, extra)
  local server, port = ipc.server("127.0.0.1")
  local threads = ipc.map(count, function(port, each, extra, id)
    local client = require("libipc").client("127.0.0.1", port)
    local result = each(client, extra, id)
    assert(client:recv() == "bye")
    client:close()
    return result
  end, port, each, extra)
  serve(server)
  server:broadcast("bye")
  local results = {threads:join()}
  server:close()
  return results
end

describe("map", function()
  it("runs a function in threads, each told its number last, and flattens what they return", function()
    assert.same({"a", 1, "a", 2, "a", 3}, {ipc.map(3, function(text, id) return text, id end, "a"):join()})
  end)

  it("takes and gives nil, nested tables and functions without upvalues", function()
    local first, second, nested = ipc.map(1, function(_, f, t) return nil, f(20), t end, nil, function(x) return x + 1 end,
      {deep = {1, {two = "2"}}, [3] = false}):join()
    assert.is_nil(first)
    assert.equal(21, second)
    assert.same({deep = {1, {two = "2"}}, [3] = false}, nested)
  end)

  it("gives each thread its own globals", function()
    SOME_GLOBAL = 1 -- luacheck: ignore
    local seen = ipc.map(1, function() return SOME_GLOBAL == nil end):join() -- luacheck: ignore
    SOME_GLOBAL = nil -- luacheck: ignore
    assert.is_true(seen)
  end)

  it("refuses functions with upvalues, and says which one", function()
    local upvalue = 4
    assert.error_matches(function() ipc.map(1, function() return upvalue end) end, 'upvalue "upvalue"')
    assert.error_matches(function() ipc.map(1, print) end, "a C function")
  end)

  it("refuses what contains itself, and coroutines", function()
    local circle = {}
    circle.circle = circle
    assert.error_matches(function() ipc.map(1, function() end, circle) end, "contains itself")
    assert.error_matches(function() ipc.map(1, function() end, coroutine.create(function() end)) end, "thread can't be sent")
  end)

  it("raises in join() what a thread raised", function()
    local threads = ipc.map(2, function(id)
      if id == 2 then error("boom") end
      return id
    end)
    assert.error_matches(function() threads:join() end, "boom")
  end)

  it("tells what is in a table that a thread raised", function()
    local silent = ipc.map(2, function(id)
      if id == 1 then error("", 0) end
      return id
    end)
    assert.error_matches(function() silent:join() end, "an error without a message")
    local threads = ipc.map(1, function() error({code = 5}) end)
    assert.error_matches(function() threads:join() end, "{code = 5}")
    threads = ipc.map(1, function() error(setmetatable({}, {__tostring = function() return "its own words" end})) end)
    assert.error_matches(function() threads:join() end, "its own words")
  end)

  it("tells by checkErrors() of those that have failed, and joins the others", function()
    local threads = ipc.map(2, function(id)
      if id == 1 then error("boom") end
      require("libipc").workqueue("checkErrors"):read()
      return 42
    end)
    local queue = ipc.workqueue("checkErrors")
    local told
    repeat
      ipc.sleep(0.01)
      local fine, failure = pcall(threads.checkErrors, threads)
      told = not fine and failure
    until told
    assert.matches("boom", told)
    queue:write(1)
    assert.same({42}, {threads:join()})
    queue:close()
  end)

  it("shows threads the same memory of a tensor", function()
    local shared = torch.zeros(4)
    ipc.map(4, function(t, id) t[id] = id end, shared):join()
    assert.same({1, 2, 3, 4}, shared:totable())
    local part = shared:narrow(1, 2, 2)
    local sum = ipc.map(1, function(t)
      t:mul(10)
      return t:sum()
    end, part):join()
    assert.equal(50, sum)
    assert.same({1, 20, 30, 4}, shared:totable())
  end)

  it("keeps a tensor's memory for what a thread returns", function()
    local made = ipc.map(1, function() return torch.range(1, 6):view(2, 3) end):join()
    collectgarbage()
    assert.same({{1, 2, 3}, {4, 5, 6}}, made:totable())
    assert.equal(0, ipc.map(1, function() return torch.Tensor() end):join():nElement())
  end)

  it("starts many", function()
    assert.equal(64, #{ipc.map(64, function() return 1 end):join()})
  end)
end)

describe("workqueue", function()
  local queue, echo

  before_each(function()
    queue = ipc.workqueue("echo")
    echo = ipc.map(1, function()
      local queue = require("libipc").workqueue("echo")
      while true do
        local value = queue:read()
        if value == nil then break end
        if torch.isTensor(value) then value:fill(13) end
        if type(value) == "function" then queue:writeup(value) else queue:write(value) end
      end
      queue:close()
    end)
  end)

  after_each(function()
    queue:write(nil)
    echo:join()
    queue:close()
  end)

  it("carries values both ways, in order", function()
    queue:write(true, 42.13, "text", {1, {b = 2}})
    assert.is_true(queue:read())
    assert.equal(42.13, queue:read())
    assert.equal("text", queue:read())
    assert.same({1, {b = 2}}, queue:read())
  end)

  it("shares tensors", function()
    local tensor = torch.FloatTensor(2):fill(0)
    queue:write(tensor)
    assert.equal(26, queue:read():sum())
    assert.equal(26, tensor:sum())
  end)

  it("takes functions, and by writeup() those with upvalues", function()
    local one, two = 1, 2
    local inner = function(x) return x + one end
    queue:write(function(x) return x * x end)
    assert.equal(9, queue:read()(3))
    assert.error_matches(function() queue:write(inner) end, 'upvalue "one"')
    queue:writeup(function(x) return inner(x) + two end)
    assert.equal(6, queue:read()(3))
  end)

  it("drains, and reads without waiting", function()
    for i = 1, 13 do queue:write(i) end
    queue:drain()
    for i = 1, 13 do assert.equal(i, queue:read(true)) end
    assert.is_nil(queue:read(true))
  end)

  it("says that it is closed", function()
    local other = ipc.workqueue("another")
    other:close()
    assert.error_matches(function() other:read() end, "closed")
  end)
end)

describe("server and client", function()
  it("send, receive, and know each other's tag and id", function()
    with_clients(1, function(server)
      local count = server:clients(1, function(client)
        client:tag(client:recv())
        client:id(client:recv())
        assert.equal("hi", client:tag())
        assert.equal(42, client:id())
        assert.matches("^127%.0%.0%.1:%d+$", client:address())
      end)
      assert.equal(1, count)
    end, function(client)
      client:send("hi")
      client:send(42)
    end)
  end)

  it("takes clients in the order of their ids, or the inverse one, or those of a tag", function()
    with_clients(4, function(server)
      server:clients(4, function(client)
        local id = client:recv()
        client:id(id)
        client:tag(id % 2 == 0 and "even" or "odd")
      end)
      local function ids(...)
        local found = {}
        server:clients(function(client) found[#found + 1] = client:id() end, ...)
        return found
      end
      assert.same({1, 2, 3, 4}, ids())
      assert.same({4, 3, 2, 1}, ids(1))
      assert.same({2, 4}, ids("even"))
      assert.same({3, 1}, ids("odd", 1))
      server:broadcast({to = "even"}, "even")
      server:broadcast({to = "odd"}, "odd")
    end, function(client, _, id)
      client:send(id)
      assert(client:recv().to == (id % 2 == 0 and "even" or "odd"))
    end)
  end)

  it("receives from any, and says from whom", function()
    with_clients(3, function(server)
      server:clients(3, function() end)
      local seen = {}
      for _ = 1, 3 do
        local id, client = server:recvAny()
        seen[id] = true
        client:send(id + 10)
      end
      assert.same({true, true, true}, seen)
    end, function(client, _, id)
      client:send(id)
      assert(client:recv() == id + 10)
    end)
  end)

  it("looks without waiting by recvAsync()", function()
    with_clients(1, function(server)
      server:clients(1, function(client)
        assert.equal("ping", client:recv())
        client:send("pong")
      end)
    end, function(client)
      assert(client:recvAsync() == nil)
      client:send("ping")
      local answer
      repeat answer = client:recvAsync() until answer ~= nil
      assert(answer == "pong")
    end)
  end)

  it("carries tensors, also into those that are there, with gaps or without", function()
    local sent = torch.range(1, 24):view(4, 6)
    with_clients(1, function(server)
      server:clients(1, function(client)
        local into, part = torch.zeros(4, 6), torch.zeros(6, 4):t()
        assert.equal(into, client:recv(into))
        assert.is_true(torch.equal(into, sent))
        client:recv(part)
        assert.is_true(torch.equal(part:contiguous(), sent))
        assert.same({{1, 7}, {2, 8}}, client:recv():totable())
        assert.equal(0, client:recv():nElement())
        assert.same({3, 4}, client:recv().list[1]:totable())
        assert.same({7, 8}, client:recv(torch.IntStorage(2)):totable())
      end)
    end, function(client, sent)
      client:send(sent)
      client:send(sent)
      client:send(sent:narrow(1, 1, 2):narrow(2, 1, 2):t())
      client:send(torch.Tensor())
      client:send({list = {torch.LongTensor{3, 4}}})
      client:send(torch.IntStorage{7, 8})
    end, sent)
  end)

  it("refuses a tensor of another size or type than expected, and goes on", function()
    with_clients(1, function(server)
      server:clients(1, function(client)
        assert.error_matches(function() client:recv(torch.zeros(3, 5, 6)) end, "3x5x6 to fill, but a torch.DoubleTensor of 3x4 arrived")
        assert.error_matches(function() client:recv(torch.FloatTensor(3, 4)) end, "FloatTensor of 3x4 to fill")
        assert.error_matches(function() client:recv(torch.zeros(2)) end, "not a tensor")
        assert.equal("still here", client:recv())
      end)
    end, function(client)
      client:send(torch.zeros(3, 4))
      client:send(torch.zeros(3, 4))
      client:send("a text")
      client:send("still here")
    end)
  end)

  it("lets a client try until its server is there", function()
    local reserved, port = native.reserve("127.0.0.1")
    local threads = ipc.map(1, function(port) return require("libipc").client("127.0.0.1", port) end, port)
    local server = ipc.server("127.0.0.1", port)
    reserved:release()
    local client = threads:join()
    server:clients(1, function(other) other:send("late") end)
    assert.equal("late", client:recv())
    client:close()
    server:close()
  end)

  it("counts what travels", function()
    local server, port = ipc.server()
    local client = ipc.client(port)
    client:send(("x"):rep(1000))
    server:clients(1, function(other) other:recv() end)
    local sent, received = client:netStats().tx, server:netStats().rx
    assert.is_true(sent.num_bytes > 1000)
    assert.equal(sent.num_bytes, received.num_bytes)
    assert.equal(1, received.num_calls)
    client:close()
    server:close()
  end)

  it("says that the other side is gone, and that one's own is closed", function()
    local server, port = ipc.server()
    local client = ipc.client(port)
    server:clients(1, function(other) other:close() end)
    assert.error_matches(function() client:recv() end, "closed the connection")
    client:close()
    assert.error_matches(function() client:send(1) end, "is closed")
    assert.equal(0, server:clients(function() end))
    assert.error_matches(function() server:recvAny() end, "no such clients")
    server:close()
    assert.error_matches(function() server:clients(1, function() end) end, "closed")
  end)

  it("takes functions from another process only where that was asked for", function()
    local server, port = ipc.server()
    local client = ipc.client(port)
    server:clients(1, function(other)
      other:send(function(x) return x + 1 end)
      other:send(function(x) return x + 1 end)
    end)
    assert.error_matches(function() client:recv() end, "acceptFunctions")
    ipc.acceptFunctions(true)
    local f = client:recv()
    ipc.acceptFunctions(false)
    assert.equal(3, f(2))
    client:close()
    server:close()
  end)

  it("listens to other machines only with a secret", function()
    if os.getenv("POLYVERSO_SECRET") then return end
    assert.error_matches(function() ipc.server("0.0.0.0") end, "POLYVERSO_SECRET")
    assert.error_matches(function() ipc.server("127.0.0.1", 70000) end, "70000")
  end)
end)

describe("what comes from others", function()
  it("is refused where it is no message, and never more than an error", function()
    local whole = native.encode({1, "two", {three = torch.range(1, 3)}, true, torch.IntStorage{4}})
    assert.same({1, 2, 3}, native.decode(whole)[3].three:totable())
    local random = 12345
    local function draw(below)
      random = (random * 1103515245 + 12345) % 2147483648
      return math.floor(random / 65536) % below
    end
    local refused = 0
    for _ = 1, 3000 do
      local at = draw(#whole) + 1
      local changed = draw(4) == 0 and whole:sub(1, at) or whole:sub(1, at - 1) .. string.char(draw(256)) .. whole:sub(at + 1)
      local fine, failure = pcall(native.decode, changed)
      if not fine then
        refused = refused + 1
        assert.equal("string", type(failure))
      end
    end
    assert.is_true(refused > 500)
    assert.error_matches(function() native.decode("") end, "too early")
    assert.error_matches(function() native.decode("\5\255\255\255\255\255\255\255\127") end, "too early")
    assert.error_matches(function() native.decode(("\6\1\0\0\0\0\0\0\0\2"):rep(200)) end, "deeper")
    assert.error_matches(function() native.decode(("\77")) end, "unknown kind")
    assert.error_matches(function() native.decode(native.encode(function() end)) end, "acceptFunctions")
  end)
end)

describe("regress", function()
  it("runs a table of tests, reports them, and ends in an error if one has failed", function()
    local test, before, said = require("regress"), io.write, {}
    io.write = function(...) said[#said + 1] = table.concat({...}) end -- luacheck: ignore
    local _, failure = pcall(test, {
      testB = function() test.mustBeTrue(1 == 2, "one is two") end,
      testA = function() test.mustBeTrue(true, "fine") end,
      testC = function() test.mustBeFalse(false, "fine") end,
    })
    io.write = before -- luacheck: ignore
    local text = table.concat(said)
    assert.equal("failed: testB", failure)
    assert.matches("ok      testA.*FAILED  testB.*one is two.*ok      testC.*2 of 3 passed", text)
    assert.has_no.errors(function()
      io.write = function() end -- luacheck: ignore
      test{testA = function() end}
      io.write = before -- luacheck: ignore
    end)
  end)
end)
