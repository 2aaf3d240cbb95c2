//! Replacements of library functions that are not deterministic or could exceed the time limit.

use std::ffi::{CStr, c_int};

use memchr::memmem;
use mlua::ffi::{self, lua_State};

use super::coroutine::set_function;
use super::{STACK_LIMIT, core_of, cross, throw};
use crate::value::{Kind, Reply, Value};

/// The functions that ours stand in for.
#[derive(Default)]
pub struct Natives {
    format: Option<ffi::lua_CFunction>,
    find: Option<ffi::lua_CFunction>,
    split: Option<ffi::lua_CFunction>,
    byte: Option<ffi::lua_CFunction>,
    codepoint: Option<ffi::lua_CFunction>,
    unpack: Option<ffi::lua_CFunction>,
    date: Option<ffi::lua_CFunction>,
    time: Option<ffi::lua_CFunction>,
    clock: Option<ffi::lua_CFunction>,
}

/// Put our functions over those of the libraries.
pub unsafe fn set_up(state: *mut lua_State, sandbox: bool, natives: &mut Natives) {
    // SAFETY: called protected, once for a VM.
    unsafe {
        let native = |library: &CStr, name: &CStr| {
            ffi::lua_getfield(state, ffi::LUA_GLOBALSINDEX, library.as_ptr());
            ffi::lua_rawgetfield(state, -1, name.as_ptr());
            let function = ffi::lua_tocfunction(state, -1);
            ffi::lua_settop(state, -3);
            function
        };
        natives.format = native(c"string", c"format");
        natives.find = native(c"string", c"find");
        natives.split = native(c"string", c"split");
        natives.byte = native(c"string", c"byte");
        natives.codepoint = native(c"utf8", c"codepoint");
        natives.unpack = native(c"table", c"unpack");
        natives.date = native(c"os", c"date");
        natives.time = native(c"os", c"time");
        natives.clock = native(c"os", c"clock");
        put(state, c"_G", &[(c"print", print)]);
        put(state, c"math", &[(c"random", random), (c"randomseed", random_seed)]);
        put(state, c"os", &[(c"clock", clock), (c"time", time), (c"date", date)]);
        put(state, c"string", &[(c"find", find), (c"split", split), (c"byte", byte)]);
        put(state, c"utf8", &[(c"codepoint", codepoint)]);
        put(state, c"table", &[(c"unpack", unpack)]);
        put(state, c"_G", &[(c"unpack", unpack)]);
        if sandbox {
            put(state, c"_G", &[(c"tostring", to_string), (c"collectgarbage", collect), (c"gcinfo", gc_info)]);
            put(state, c"string", &[(c"format", format_values)]);
        } else {
            put(state, c"_G", &[(c"collectgarbage", control_collector)]);
        }
    }
}

unsafe fn put(state: *mut lua_State, library: &CStr, functions: &[(&'static CStr, ffi::lua_CFunction)]) {
    // SAFETY: called protected.
    unsafe {
        ffi::lua_getfield(state, ffi::LUA_GLOBALSINDEX, library.as_ptr());
        for (name, function) in functions {
            set_function(state, name, *function);
        }
        ffi::lua_settop(state, -2);
    }
}

unsafe fn pass(state: *mut lua_State, native: Option<ffi::lua_CFunction>) -> c_int {
    // SAFETY: the native function sees the arguments of the one that stands in for it.
    match native {
        Some(native) => unsafe { native(state) },
        None => unsafe { throw(state, "not available") },
    }
}

/// Push what `tostring` says, with a number in place of an address.
unsafe fn push_name(state: *mut lua_State, index: c_int) {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let kind = ffi::lua_type(state, index);
        let plain = matches!(
            kind,
            ffi::LUA_TNIL
                | ffi::LUA_TBOOLEAN
                | ffi::LUA_TNUMBER
                | ffi::LUA_TINTEGER
                | ffi::LUA_TSTRING
                | ffi::LUA_TVECTOR
        );
        if plain {
            ffi::luaL_tolstring_(state, index, std::ptr::null_mut());
            return;
        }
        if ffi::luaL_getmetafield_(state, index, c"__tostring".as_ptr()) != 0 {
            ffi::lua_settop(state, -2);
            ffi::luaL_tolstring_(state, index, std::ptr::null_mut());
            return;
        }
        let number = number_of(state, index);
        let kind = CStr::from_ptr(ffi::luaL_typename(state, index)).to_string_lossy();
        cross::push_text(state, format!("{kind}: 0x{number:016x}").as_bytes());
    }
}

/// The number of an object: the first one that is asked for is 1.
unsafe fn number_of(state: *mut lua_State, index: c_int) -> u64 {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let core = core_of(state);
        let scope = core.scope();
        let index = ffi::lua_absindex(state, index);
        ffi::luaL_checkstack_(state, 4, std::ptr::null());
        let names = scope.names.borrow().as_ref().map(|names| names.id);
        match names {
            Some(id) => {
                ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, id);
            }
            None => {
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, core.marks.weak);
                ffi::lua_setmetatable(state, -2);
                scope.names.replace(Some(core.reference(state, -1, Kind::Table)));
            }
        }
        ffi::lua_pushvalue(state, index);
        if ffi::lua_rawget(state, -2) == ffi::LUA_TNIL {
            let number = scope.named.get() + 1;
            scope.named.set(number);
            ffi::lua_pushvalue(state, index);
            ffi::lua_pushnumber(state, number as f64);
            ffi::lua_rawset(state, -4);
            ffi::lua_settop(state, -3);
            return number;
        }
        let number = ffi::lua_tonumberx(state, -1, std::ptr::null_mut());
        ffi::lua_settop(state, -3);
        number as u64
    }
}

unsafe extern "C-unwind" fn to_string(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        ffi::luaL_checkany(state, 1);
        push_name(state, 1);
    }
    1
}

unsafe extern "C-unwind" fn format_values(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        for index in 2..=ffi::lua_gettop(state) {
            if ffi::lua_type(state, index) >= ffi::LUA_TTABLE || ffi::lua_islightuserdata(state, index) != 0 {
                push_name(state, index);
                ffi::lua_replace(state, index);
            }
        }
        pass(state, core_of(state).natives.format)
    }
}

unsafe extern "C-unwind" fn print(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let core = core_of(state);
        let mut line = Vec::new();
        for index in 1..=ffi::lua_gettop(state) {
            if index > 1 {
                line.push(b'\t');
            }
            if core.options.sandbox {
                push_name(state, index);
            } else {
                ffi::luaL_tolstring_(state, index, std::ptr::null_mut());
            }
            line.extend_from_slice(cross::bytes(state, -1).unwrap_or_default());
            ffi::lua_settop(state, -2);
        }
        let print = core.options.print.clone();
        let reply = core.ask_host(state, || print.call(vec![Value::Text(line)]));
        if let Err(error) = reply {
            if core.push(state, &error).is_err() {
                throw(state, "print failed");
            }
            drop(error);
            ffi::lua_error(state);
        }
    }
    0
}

unsafe extern "C-unwind" fn collect(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        match cross::bytes(state, 1) {
            None if ffi::lua_gettop(state) == 0 => {}
            Some(b"collect" | b"count") => {}
            _ => throw(state, "collectgarbage must be called with 'count' or 'collect'"),
        }
        ffi::lua_pushnumber(state, 0.0);
    }
    1
}

/// `collectgarbage` with all its options, for scripts that are trusted.
unsafe extern "C-unwind" fn control_collector(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let what = match cross::bytes(state, 1).unwrap_or(b"collect") {
            b"collect" => ffi::LUA_GCCOLLECT,
            b"count" => ffi::LUA_GCCOUNT,
            b"step" => ffi::LUA_GCSTEP,
            b"stop" => ffi::LUA_GCSTOP,
            b"restart" => ffi::LUA_GCRESTART,
            b"isrunning" => ffi::LUA_GCISRUNNING,
            b"setgoal" => ffi::LUA_GCSETGOAL,
            b"setstepmul" => ffi::LUA_GCSETSTEPMUL,
            b"setstepsize" => ffi::LUA_GCSETSTEPSIZE,
            _ => ffi::luaL_argerror(state, 1, c"invalid option".as_ptr()),
        };
        let given = if ffi::lua_isnoneornil(state, 2) != 0 { 0 } else { ffi::luaL_checkinteger_(state, 2) };
        let result = ffi::lua_gc(state, what, given);
        match what {
            ffi::LUA_GCSTEP | ffi::LUA_GCISRUNNING => ffi::lua_pushboolean(state, result),
            _ => ffi::lua_pushnumber(state, f64::from(result)),
        }
    }
    1
}

unsafe extern "C-unwind" fn gc_info(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe { ffi::lua_pushnumber(state, 0.0) };
    1
}

unsafe extern "C-unwind" fn random(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let bits = core_of(state).scope.borrow().random();
        let whole = |index| ffi::luaL_checkinteger_(state, index);
        let (low, high) = match ffi::lua_gettop(state) {
            0 => {
                ffi::lua_pushnumber(state, (bits >> 11) as f64 / (1u64 << 53) as f64);
                return 1;
            }
            1 => (1, whole(1)),
            2 => (whole(1), whole(2)),
            _ => throw(state, "wrong number of arguments"),
        };
        if low > high {
            ffi::luaL_argerror(state, ffi::lua_gettop(state), c"interval is empty".as_ptr());
        }
        let width = (i64::from(high) - i64::from(low) + 1).unsigned_abs();
        let offset = ((u128::from(bits) * u128::from(width)) >> 64) as i64;
        ffi::lua_pushnumber(state, (i64::from(low) + offset) as f64);
    }
    1
}

unsafe extern "C-unwind" fn random_seed(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let seed = ffi::luaL_checkinteger_(state, 1);
        core_of(state).scope.borrow().reseed(i64::from(seed).cast_unsigned());
    }
    0
}

/// The time of the host's clock, if there is one.
unsafe fn host_time(state: *mut lua_State) -> Option<f64> {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let core = core_of(state);
        let clock = core.scope.borrow().surroundings.clock.clone()?;
        let reply = core.ask_host(state, || clock.call(Vec::new()));
        match reply {
            Ok(Reply::Return(values)) => match values.first() {
                Some(Value::Number(time)) => Some(*time),
                _ => {
                    drop(values);
                    drop(clock);
                    throw(state, "the clock did not give a number")
                }
            },
            Ok(reply) => {
                drop(reply);
                throw(state, "a clock cannot wait")
            }
            Err(error) => {
                if core.push(state, &error).is_err() {
                    throw(state, "the clock failed");
                }
                drop(error);
                ffi::lua_error(state)
            }
        }
    }
}

unsafe extern "C-unwind" fn clock(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        match host_time(state) {
            Some(time) => {
                ffi::lua_pushnumber(state, time);
                1
            }
            None => pass(state, core_of(state).natives.clock),
        }
    }
}

unsafe extern "C-unwind" fn time(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        if ffi::lua_isnoneornil(state, 1) != 0
            && let Some(time) = host_time(state)
        {
            ffi::lua_pushnumber(state, time.floor());
            return 1;
        }
        pass(state, core_of(state).natives.time)
    }
}

unsafe extern "C-unwind" fn date(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let core = core_of(state);
        ffi::lua_settop(state, 2);
        if ffi::lua_isnoneornil(state, 2) != 0
            && let Some(time) = host_time(state)
        {
            ffi::lua_pushnumber(state, time.floor());
            ffi::lua_replace(state, 2);
        }
        if core.options.sandbox {
            // The time zone of the machine is not the script's business.
            let given = cross::bytes(state, 1).unwrap_or(b"%c");
            if given.first() != Some(&b'!') {
                cross::push_text(state, &[b"!", given].concat());
                ffi::lua_replace(state, 1);
            }
        }
        pass(state, core.natives.date)
    }
}

/// Needles up to this long are found fast enough by the library.
const SHORT: usize = 32;

unsafe extern "C-unwind" fn find(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        if let (Some(text), Some(needle)) = (cross::bytes(state, 1), cross::bytes(state, 2))
            && needle.len() > SHORT
            && (ffi::lua_toboolean(state, 4) != 0 || !needle.iter().any(|byte| b"^$*+?.([%-".contains(byte)))
        {
            let first = if ffi::lua_isnoneornil(state, 3) != 0 { 1 } else { ffi::luaL_checkinteger_(state, 3) };
            let length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
            let first = if first < 0 { (length.saturating_add(first).saturating_add(1)).max(1) } else { first.max(1) };
            let start = usize::try_from(first - 1).unwrap_or(0);
            match text.get(start..).and_then(|rest| memmem::find(rest, needle)) {
                Some(offset) => {
                    ffi::lua_pushnumber(state, (start + offset + 1) as f64);
                    ffi::lua_pushnumber(state, (start + offset + needle.len()) as f64);
                    return 2;
                }
                None => {
                    ffi::lua_pushnil(state);
                    return 1;
                }
            }
        }
        pass(state, core_of(state).natives.find)
    }
}

/// `table.unpack`, which gives at most as many values as in Luau's own build.
unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TTABLE {
            let whole = |index, absent| {
                if ffi::lua_isnoneornil(state, index) != 0 {
                    absent
                } else {
                    ffi::luaL_checkinteger_(state, index).into()
                }
            };
            let first: i64 = whole(2, 1);
            let last = whole(3, i64::try_from(ffi::lua_objlen(state, 1)).unwrap_or(i64::MAX));
            if !fits(state, first, last) {
                throw(state, "too many results to unpack");
            }
        }
        pass(state, core_of(state).natives.unpack)
    }
}

/// Whether one value for each number from `first` to `last` fits on the stack.
unsafe fn fits(state: *mut lua_State, first: i64, last: i64) -> bool {
    // SAFETY: called by a function that the VM called.
    let top = i64::from(unsafe { ffi::lua_gettop(state) });
    last.saturating_sub(first).saturating_add(1).saturating_add(top) <= STACK_LIMIT.into()
}

/// Refuse a range of a string that gives more values than in Luau's own build.
unsafe fn check_slice(state: *mut lua_State) {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let length = cross::bytes(state, 1).map_or(0, <[u8]>::len) as i64;
        if length <= i64::from(STACK_LIMIT) / 2 {
            return;
        }
        let place = |index, absent: i64| {
            let given = if ffi::lua_isnoneornil(state, index) != 0 {
                absent
            } else {
                i64::from(ffi::luaL_checkinteger_(state, index))
            };
            if given >= 0 { given } else { (length + given + 1).max(0) }
        };
        let first = place(2, 1);
        let last = place(3, first).min(length);
        if !fits(state, first.max(1), last) {
            throw(state, "stack overflow (string slice too long)");
        }
    }
}

unsafe extern "C-unwind" fn byte(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        check_slice(state);
        pass(state, core_of(state).natives.byte)
    }
}

unsafe extern "C-unwind" fn codepoint(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        check_slice(state);
        pass(state, core_of(state).natives.codepoint)
    }
}

unsafe extern "C-unwind" fn split(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let (Some(text), Some(separator)) = (cross::bytes(state, 1), cross::bytes(state, 2)) else {
            return pass(state, core_of(state).natives.split);
        };
        if separator.len() <= SHORT {
            return pass(state, core_of(state).natives.split);
        }
        ffi::lua_createtable(state, 0, 0);
        let (mut start, mut index) = (0, 1);
        for found in memmem::find_iter(text, separator) {
            cross::push_text(state, &text[start..found]);
            ffi::lua_rawseti_(state, -2, index);
            (start, index) = (found + separator.len(), index + 1);
        }
        cross::push_text(state, &text[start..]);
        ffi::lua_rawseti_(state, -2, index);
    }
    1
}
