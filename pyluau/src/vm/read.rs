//! Values off the stack of a coroutine.

use std::ffi::{CStr, c_int, c_void};

use mlua::ffi::{self, lua_State};

use super::Core;
use super::cross::{CALLBACK, Held, bytes, call_host, object, room};
use crate::error::{Error, Result};
use crate::value::{Allowance, Callback, Crossing, Kind, Value};

impl Core {
    /// Read the values at `first..=last`.
    pub unsafe fn read_range(
        &self,
        state: *mut lua_State,
        first: c_int,
        last: c_int,
        crossing: Crossing,
    ) -> Result<Vec<Value>> {
        let mut reader = Reader { core: self, state, crossing, left: self.allowance(), path: Vec::new() };
        // SAFETY: called protected.
        (first..=last).map(|index| unsafe { reader.read(index) }).collect()
    }

    /// Read one value.
    pub unsafe fn read(&self, state: *mut lua_State, index: c_int, crossing: Crossing) -> Result<Value> {
        // SAFETY: called protected.
        unsafe {
            let index = ffi::lua_absindex(state, index);
            Reader { core: self, state, crossing, left: self.allowance(), path: Vec::new() }.read(index)
        }
    }
}

struct Reader<'a> {
    core: &'a Core,
    state: *mut lua_State,
    crossing: Crossing,
    left: Allowance,
    /// The tables that are being read, to find one that holds itself.
    path: Vec<*const c_void>,
}

impl Reader<'_> {
    unsafe fn read(&mut self, index: c_int) -> Result<Value> {
        let state = self.state;
        // SAFETY: called protected, with a valid absolute index.
        unsafe {
            self.left.spend(0)?;
            Ok(match ffi::lua_type(state, index) {
                ffi::LUA_TNIL | ffi::LUA_TNONE => Value::Nil,
                ffi::LUA_TBOOLEAN => Value::Boolean(ffi::lua_toboolean(state, index) != 0),
                ffi::LUA_TNUMBER => Value::Number(ffi::lua_tonumberx(state, index, std::ptr::null_mut())),
                ffi::LUA_TINTEGER => Value::Integer(ffi::lua_tointeger64(state, index, std::ptr::null_mut())),
                ffi::LUA_TVECTOR => {
                    let parts = ffi::lua_tovector(state, index);
                    Value::Vector([*parts, *parts.add(1), *parts.add(2)])
                }
                ffi::LUA_TSTRING => {
                    let text = bytes(state, index).unwrap_or_default();
                    self.left.spend(text.len())?;
                    Value::Text(text.to_vec())
                }
                ffi::LUA_TBUFFER => self.read_buffer(index)?,
                ffi::LUA_TTABLE if self.crossing == Crossing::Shallow => self.core.refer(state, index, Kind::Table),
                ffi::LUA_TTABLE => self.read_table(index)?,
                ffi::LUA_TFUNCTION => self.read_function(index)?,
                ffi::LUA_TTHREAD => self.by_reference(index, Kind::Thread)?,
                ffi::LUA_TUSERDATA => match object(state, index) {
                    Some(object) => Value::Object(object.clone()),
                    None => self.by_reference(index, Kind::Userdata)?,
                },
                _ => self.by_reference(index, Kind::Userdata)?,
            })
        }
    }

    unsafe fn by_reference(&self, index: c_int, kind: Kind) -> Result<Value> {
        // SAFETY: as `read`.
        unsafe {
            if self.crossing == Crossing::Plain {
                let name = CStr::from_ptr(ffi::luaL_typename(self.state, index)).to_string_lossy();
                return Err(Error::Conversion(format!("a {name} is not plain data")));
            }
            Ok(self.core.refer(self.state, index, kind))
        }
    }

    unsafe fn read_buffer(&mut self, index: c_int) -> Result<Value> {
        // SAFETY: as `read`.
        unsafe {
            if self.crossing == Crossing::Shallow {
                return Ok(self.core.refer(self.state, index, Kind::Buffer));
            }
            let mut length = 0;
            let data = ffi::lua_tobuffer(self.state, index, &mut length).cast::<u8>();
            self.left.spend(length)?;
            Ok(Value::Buffer(if length == 0 { Vec::new() } else { std::slice::from_raw_parts(data, length).to_vec() }))
        }
    }

    unsafe fn read_function(&self, index: c_int) -> Result<Value> {
        let state = self.state;
        // SAFETY: as `read`.
        unsafe {
            let ours = ffi::lua_tocfunction(state, index)
                .is_some_and(|function| std::ptr::fn_addr_eq(function, call_host as ffi::lua_CFunction));
            if ours && self.crossing != Crossing::Plain && !ffi::lua_getupvalue(state, index, 1).is_null() {
                let held = ffi::lua_touserdatatagged(state, -1, CALLBACK).cast::<Held<dyn Callback>>().as_ref();
                let callback = held.cloned();
                ffi::lua_settop(state, -2);
                if let Some(callback) = callback {
                    return Ok(Value::Callback(callback));
                }
            }
            self.by_reference(index, Kind::Function)
        }
    }

    unsafe fn read_table(&mut self, index: c_int) -> Result<Value> {
        let state = self.state;
        // SAFETY: as `read`.
        unsafe {
            let address = ffi::lua_topointer(state, index);
            if self.path.contains(&address) {
                return Err(Error::Conversion("a table that holds itself is not plain data".to_owned()));
            }
            if self.path.len() >= self.left.depth {
                return Err(Error::Conversion(format!("tables are nested deeper than {}", self.left.depth)));
            }
            self.path.push(address);
            room(state);
            let value = self.read_pairs(index);
            self.path.pop();
            match value? {
                Value::Map(pairs) if pairs.is_empty() && self.is_array(index) => Ok(Value::List(Vec::new())),
                value => Ok(value),
            }
        }
    }

    unsafe fn is_array(&self, index: c_int) -> bool {
        // SAFETY: as `read`.
        unsafe {
            if ffi::lua_getmetatable(self.state, index) == 0 {
                return false;
            }
            ffi::lua_rawgeti_(self.state, ffi::LUA_REGISTRYINDEX, self.core.marks.array);
            let same = ffi::lua_rawequal(self.state, -1, -2) != 0;
            ffi::lua_settop(self.state, -3);
            same
        }
    }

    /// A list as long as the keys are 1, 2, 3…; else a map.
    unsafe fn read_pairs(&mut self, index: c_int) -> Result<Value> {
        let state = self.state;
        // SAFETY: as `read`.
        unsafe {
            let top = ffi::lua_gettop(state);
            let mut list: Vec<Value> = Vec::new();
            let mut map: Vec<(Value, Value)> = Vec::new();
            let mut place = 0;
            loop {
                place = ffi::lua_rawiter(state, index, place);
                if place < 0 {
                    break;
                }
                let next = (ffi::lua_type(state, top + 1) == ffi::LUA_TNUMBER
                    && map.is_empty()
                    && ffi::lua_tonumberx(state, top + 1, std::ptr::null_mut()) == (list.len() + 1) as f64)
                    .then(|| self.read(top + 2))
                    .transpose()?;
                match next {
                    Some(value) => list.push(value),
                    None => {
                        let key = self.read_key(top + 1)?;
                        let value = self.read(top + 2)?;
                        map.push((key, value));
                    }
                }
                ffi::lua_settop(state, top);
            }
            Ok(arrange(list, map))
        }
    }

    unsafe fn read_key(&mut self, index: c_int) -> Result<Value> {
        // SAFETY: as `read`.
        unsafe {
            match ffi::lua_type(self.state, index) {
                ffi::LUA_TBOOLEAN | ffi::LUA_TNUMBER | ffi::LUA_TINTEGER | ffi::LUA_TSTRING | ffi::LUA_TVECTOR => {
                    self.read(index)
                }
                _ => {
                    let name = CStr::from_ptr(ffi::luaL_typename(self.state, index)).to_string_lossy();
                    Err(Error::Conversion(format!("a {name} as a key of a table is not plain data")))
                }
            }
        }
    }
}

/// Build the value of a table: the keys of a list may occur in any order.
fn arrange(list: Vec<Value>, mut map: Vec<(Value, Value)>) -> Value {
    if map.is_empty() {
        return if list.is_empty() { Value::Map(map) } else { Value::List(list) };
    }
    let total = list.len() + map.len();
    let position = |key: &Value| match key {
        Value::Number(number) if *number >= 1.0 && *number <= total as f64 && number.fract() == 0.0 => {
            Some(*number as usize)
        }
        _ => None,
    };
    if map.iter().all(|(key, _)| position(key).is_some()) {
        map.sort_by_key(|(key, _)| position(key));
        return Value::List(list.into_iter().chain(map.into_iter().map(|(_, value)| value)).collect());
    }
    let numbered = (1..).zip(list).map(|(index, value)| (Value::Number(f64::from(index)), value));
    Value::Map(numbered.chain(map).collect())
}
