"""Scripts that run both here and in the stock ``luau`` binary; each runs for some tens of milliseconds."""

SCRIPTS = {
    "fib(27)": "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end fib(27)",
    "loop 10M": "local n = 0 for i = 1, 10000000 do n = n + i % 7 end",
    "while 5M": "local i = 0 while i < 5000000 do i += 1 end",
    "strings": "local t = {} for i = 1, 200000 do t[#t + 1] = 'k' .. i end local s = table.concat(t, ',')",
    "format": "for i = 1, 200000 do local s = string.format('%d:%s:%5.2f', i, 'x', i / 3) end",
    "patterns": "local s = ('abc=123; '):rep(2000) for i = 1, 10 do for k, v in s:gmatch('(%w+)=(%w+)') do end end",
    "tables": "for i = 1, 300000 do local t = {a = i, b = {i, i + 1}} t.c = t.a + t.b[2] end",
    "array": """local t = table.create(1000000, 0) for i = 1, #t do t[i] = i * 2 end
local s = 0 for _, v in t do s += v end""",
    "sort 100k": """local t, x = {}, 42
for i = 1, 100000 do x = (x * 1103515245 + 12345) % 2147483648 t[i] = x end table.sort(t)""",
    "closures": """local function make(n) return function(m) n += m return n end end
local f = make(0) for i = 1, 3000000 do f(i) end""",
    "methods": """local C = {} C.__index = C function C:add(n) self.n += n end
local o = setmetatable({n = 0}, C) for i = 1, 3000000 do o:add(i) end""",
    "coroutines": """local co = coroutine.wrap(function() while true do coroutine.yield(1) end end)
for i = 1, 500000 do co() end""",
    "pcall": "local f = function(x) return x end for i = 1, 1000000 do pcall(f, i) end",
    "tostring": "for i = 1, 500000 do local s = tostring(i) end",
    "buffers": "local b = buffer.create(1024) for i = 1, 3000000 do buffer.writeu8(b, i % 1024, i % 256) end",
    "vectors": "local v = vector.create(0, 0, 0) for i = 1, 3000000 do v += vector.create(1, 2, 3) end",
}
