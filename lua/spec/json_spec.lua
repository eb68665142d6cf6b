-- polyverso.json: valid texts, as the library writes them, and invalid ones.

local json = require("polyverso.json")

describe("JSON", function()
  it("becomes tables", function()
    assert.same({}, json.decode(" {} "))
    assert.same({a = {1, -2.5, 3e2, {}}, b = {c = true, d = false}}, json.decode('{"a" : [1, -2.5,3e2,[]], "b":{"c":true,"d":false,"e":null}}'))
    assert.same({"", "x"}, json.decode('["","x"]'))
    assert.equal(7, json.decode("7"))
    assert.is_nil(json.decode("null"))
    assert.equal('a"\\/\n\tä€\228\184\173 4', json.decode('"a\\"\\\\\\/\\n\\tä\\u20AC\\u4e2d\\u00204"'))
  end)

  it("is told from what is none", function()
    for _, text in ipairs({"", "{", "[1,]", "[1 2]", '{"a"}', '{"a":}', "{1:2}", '"open', '"\\x"', "1 2", "nonsense", "--1"}) do
      local fine, why = pcall(json.decode, text)
      assert.is_false(fine, text)
      assert.truthy(why:find("invalid JSON", 1, true))
    end
  end)
end)
