//! What the host does with the values it holds by reference, and with the VM as a whole.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::coroutine::{self, Wait, record};
use super::{Core, Entry, cross};
use crate::error::{Error, Result, Stop};
use crate::value::{Crossing, Kind, Reference, Value};

/// Where a coroutine stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ThreadStatus {
    Suspended,
    Running,
    Normal,
    Finished,
    Failed,
}

impl Core {
    /// Run code and read its results.
    pub fn execute(
        &self,
        entry: &Entry,
        environment: Option<&Value>,
        arguments: &[Value],
        crossing: Option<Crossing>,
    ) -> Result<Vec<Value>> {
        // SAFETY: `run` protects.
        self.run(&self.base_scope, |state| unsafe {
            match entry {
                Entry::Function(reference) => self.push_reference(state, reference)?,
                entry => {
                    self.push_environment(state, environment)?;
                    self.push_entry(state, entry, 1)?;
                    ffi::lua_remove(state, 1);
                }
            }
            let count = self.push_all(state, arguments)?;
            match crossing {
                None => {
                    self.call(state, count, 0)?;
                    Ok(Vec::new())
                }
                Some(crossing) => {
                    self.call(state, count, ffi::LUA_MULTRET)?;
                    self.read_range(state, 1, ffi::lua_gettop(state), crossing)
                }
            }
        })
    }

    /// Load code without running it.
    pub fn load_function(&self, entry: &Entry, environment: Option<&Value>) -> Result<Value> {
        // SAFETY: protected.
        self.protect(|state| unsafe {
            self.push_environment(state, environment)?;
            self.push_entry(state, entry, 1)?;
            Ok(self.refer(state, -1, Kind::Function))
        })
    }

    /// A function with the same code, whose globals are in another environment.
    pub fn with_environment(&self, function: &Reference, environment: &Value) -> Result<Value> {
        // SAFETY: protected.
        self.protect(|state| unsafe {
            self.push_environment(state, Some(environment))?;
            self.push_reference(state, function)?;
            self.rebind(state, 1)?;
            Ok(self.refer(state, -1, Kind::Function))
        })
    }

    pub fn globals(&self) -> Result<Value> {
        // SAFETY: protected.
        self.protect(|state| unsafe {
            ffi::lua_pushvalue(state, ffi::LUA_GLOBALSINDEX);
            Ok(self.refer(state, -1, Kind::Table))
        })
    }

    pub fn primitives(&self) -> Result<Value> {
        // SAFETY: protected.
        self.protect(|state| unsafe {
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.marks.primitives);
            Ok(self.refer(state, -1, Kind::Table))
        })
    }

    pub fn environment(&self, values: &Value) -> Result<Value> {
        // SAFETY: protected.
        self.protect(|state| unsafe {
            self.push_environment(state, Some(values))?;
            Ok(self.refer(state, -1, Kind::Table))
        })
    }

    /// A table by reference, made of a value or empty with room.
    pub fn new_table(&self, value: Option<&Value>, array: c_int, fields: c_int) -> Result<Value> {
        // SAFETY: protected.
        self.protect(|state| unsafe {
            match value {
                Some(value) => self.push(state, value)?,
                None => ffi::lua_createtable(state, array, fields),
            }
            Ok(self.refer(state, -1, Kind::Table))
        })
    }

    pub fn memory_used(&self) -> usize {
        self.memory.used.get()
    }

    /// Collect all garbage.
    pub fn collect(&self) -> Result<()> {
        self.protect(|state| {
            // SAFETY: protected.
            unsafe { ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0) };
            Ok(())
        })
    }

    /// The values and frames on the stack, for debugging.
    pub fn dump(&self) -> String {
        let state = self.current.get();
        // SAFETY: only looks.
        unsafe {
            let frames = super::traceback(state, 0);
            let mut lines = vec![format!("{}, {} bytes", super::version(), self.memory_used())];
            for index in 1..=ffi::lua_gettop(state) {
                let name = std::ffi::CStr::from_ptr(ffi::luaL_typename(state, index)).to_string_lossy();
                lines.push(format!("[{index}] {name}"));
            }
            lines.extend(frames.lines().map(|frame| format!("at {frame}")));
            lines.join("\n")
        }
    }

    fn with<T>(&self, reference: &Reference, body: impl FnOnce(*mut lua_State) -> Result<T>) -> Result<T> {
        // SAFETY: `run` protects.
        self.run(&self.base_scope, |state| unsafe {
            self.push_reference(state, reference)?;
            body(state)
        })
    }

    pub fn get(&self, table: &Reference, key: &Value, raw: bool) -> Result<Value> {
        // SAFETY: `with` protects.
        self.with(table, |state| unsafe {
            self.push(state, key)?;
            if raw {
                ffi::lua_rawget(state, 1);
            } else {
                ffi::lua_gettable(state, 1);
            }
            self.read(state, -1, Crossing::Shallow)
        })
    }

    pub fn set(&self, table: &Reference, key: &Value, value: &Value, raw: bool) -> Result<()> {
        if matches!(key, Value::Nil) || matches!(key, Value::Number(number) if number.is_nan()) {
            return Err(Error::Conversion(format!("{} cannot be a key of a table", key.describe())));
        }
        // SAFETY: `with` protects.
        self.with(table, |state| unsafe {
            self.push(state, key)?;
            self.push(state, value)?;
            if raw {
                ffi::lua_rawset(state, 1);
            } else {
                ffi::lua_settable(state, 1);
            }
            Ok(())
        })
    }

    /// The length, by `__len` where there is one.
    pub fn length(&self, value: &Reference) -> Result<usize> {
        // SAFETY: `with` protects.
        self.with(value, |state| unsafe {
            if ffi::luaL_callmeta(state, 1, c"__len".as_ptr()) != 0 {
                let length = ffi::lua_tonumberx(state, -1, std::ptr::null_mut());
                return Ok(length.max(0.0) as usize);
            }
            Ok(ffi::lua_objlen(state, 1))
        })
    }

    /// The entries after `place`, and where to go on; at most `count`.
    pub fn entries(&self, table: &Reference, place: c_int, count: usize) -> Result<(Vec<(Value, Value)>, c_int)> {
        // SAFETY: `with` protects.
        self.with(table, |state| unsafe {
            let (mut found, mut place) = (Vec::new(), place);
            while found.len() < count {
                place = ffi::lua_rawiter(state, 1, place);
                if place < 0 {
                    break;
                }
                found.push((self.read(state, 2, Crossing::Shallow)?, self.read(state, 3, Crossing::Shallow)?));
                ffi::lua_settop(state, 1);
            }
            Ok((found, place))
        })
    }

    /// Read a value by value.
    pub fn value_of(&self, reference: &Reference, crossing: Crossing) -> Result<Value> {
        // SAFETY: `with` protects.
        self.with(reference, |state| unsafe { self.read(state, 1, crossing) })
    }

    /// What `tostring` says.
    pub fn text_of(&self, reference: &Reference) -> Result<String> {
        // SAFETY: `with` protects.
        self.with(reference, |state| unsafe {
            ffi::luaL_tolstring_(state, 1, std::ptr::null_mut());
            Ok(String::from_utf8_lossy(cross::bytes(state, -1).unwrap_or_default()).into_owned())
        })
    }

    /// Whether two references are to the same thing.
    pub fn same(&self, left: &Reference, right: &Reference) -> Result<bool> {
        // SAFETY: `with` protects.
        self.with(left, |state| unsafe {
            self.push_reference(state, right)?;
            Ok(ffi::lua_rawequal(state, 1, 2) != 0)
        })
    }

    pub fn set_read_only(&self, table: &Reference, read_only: bool) -> Result<()> {
        self.with(table, |state| {
            // SAFETY: `with` protects.
            unsafe { ffi::lua_setreadonly(state, 1, c_int::from(read_only)) };
            Ok(())
        })
    }

    pub fn set_metatable(&self, table: &Reference, metatable: Option<&Reference>) -> Result<()> {
        // SAFETY: `with` protects.
        self.with(table, |state| unsafe {
            if ffi::lua_getreadonly(state, 1) != 0 {
                return Err(Error::Misuse("attempt to modify a readonly table".to_owned()));
            }
            match metatable {
                Some(metatable) => self.push_reference(state, metatable)?,
                None => ffi::lua_pushnil(state),
            }
            ffi::lua_setmetatable(state, 1);
            Ok(())
        })
    }

    /// Give all values of the type of `example` a metatable.
    pub fn set_type_metatable(&self, example: &Value, metatable: &Reference) -> Result<()> {
        // SAFETY: protected.
        self.protect(|state| unsafe {
            self.push(state, example)?;
            self.push_reference(state, metatable)?;
            ffi::lua_setmetatable(state, 1);
            Ok(())
        })
    }

    /// A coroutine that will run a function.
    pub fn new_thread(&self, function: &Reference) -> Result<Value> {
        // SAFETY: `with` protects.
        self.with(function, |state| unsafe {
            let coroutine = coroutine::create(self, state, 1);
            coroutine::share_environment(state, coroutine, 1);
            Ok(self.refer(state, -1, Kind::Thread))
        })
    }

    /// Resume a coroutine; return whether it yielded, and its values.
    pub fn resume(
        &self,
        thread: &Reference,
        values: &[Value],
        failing: bool,
        crossing: Crossing,
    ) -> Result<(bool, Vec<Value>)> {
        // SAFETY: `with` protects.
        self.with(thread, |state| unsafe {
            let coroutine = ffi::lua_tothread(state, 1);
            if coroutine::waits(coroutine) {
                return Err(Error::Misuse("coroutine is waiting for the host".to_owned()));
            }
            if ffi::lua_costatus(state, coroutine) != ffi::LUA_COSUS {
                return Err(Error::Misuse("only a suspended coroutine can be resumed".to_owned()));
            }
            let count = self.push_all(state, values)?;
            if ffi::lua_checkstack(coroutine, count) == 0 {
                return Err(Error::Conversion("too many values".to_owned()));
            }
            ffi::lua_xmove(state, coroutine, count);
            let status = match failing {
                true => ffi::lua_resumeerror(coroutine, state),
                false => ffi::lua_resume_(coroutine, state, count),
            };
            if status == ffi::LUA_OK || status == ffi::LUA_YIELD {
                let values = self.read_range(coroutine, 1, ffi::lua_gettop(coroutine), crossing)?;
                ffi::lua_settop(coroutine, 0);
                return Ok((status == ffi::LUA_YIELD, values));
            }
            self.traceback.replace(super::traceback(coroutine, 0));
            ffi::lua_xmove(coroutine, state, 1);
            Err(self.caught(state, status))
        })
    }

    pub fn thread_status(&self, thread: &Reference) -> Result<ThreadStatus> {
        // SAFETY: `with` protects.
        self.with(thread, |state| unsafe {
            Ok(match ffi::lua_costatus(state, ffi::lua_tothread(state, 1)) {
                ffi::LUA_CORUN => ThreadStatus::Running,
                ffi::LUA_COSUS => ThreadStatus::Suspended,
                ffi::LUA_CONOR => ThreadStatus::Normal,
                ffi::LUA_COFIN => ThreadStatus::Finished,
                _ => ThreadStatus::Failed,
            })
        })
    }

    pub fn is_yieldable(&self, thread: &Reference) -> Result<bool> {
        // SAFETY: `with` protects.
        self.with(thread, |state| unsafe { Ok(ffi::lua_isyieldable(ffi::lua_tothread(state, 1)) != 0) })
    }

    /// Close a coroutine that does not run.
    pub fn close_thread(&self, thread: &Reference) -> Result<()> {
        // SAFETY: `with` protects.
        self.with(thread, |state| unsafe {
            let coroutine = ffi::lua_tothread(state, 1);
            let status = ffi::lua_costatus(state, coroutine);
            if status == ffi::LUA_CORUN || status == ffi::LUA_CONOR {
                return Err(Error::Misuse("a running coroutine cannot be closed".to_owned()));
            }
            if record(coroutine).is_some_and(|known| known.wait.get() != Wait::Nothing) {
                return Err(Error::Misuse("coroutine is waiting for the host".to_owned()));
            }
            coroutine::close(self, state, coroutine);
            Ok(())
        })
    }

    pub fn read_buffer(&self, buffer: &Reference, start: usize, end: usize) -> Result<Vec<u8>> {
        // SAFETY: `with` protects.
        self.with(buffer, |state| unsafe {
            let mut length = 0;
            let data = ffi::lua_tobuffer(state, 1, &mut length).cast::<u8>();
            if start > end || end > length {
                return Err(Error::Misuse(format!("{start}:{end} is outside a buffer of {length} bytes")));
            }
            Ok(if start == end {
                Vec::new()
            } else {
                std::slice::from_raw_parts(data.add(start), end - start).to_vec()
            })
        })
    }

    pub fn write_buffer(&self, buffer: &Reference, start: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: `with` protects; the range is checked.
        self.with(buffer, |state| unsafe {
            let mut length = 0;
            let data = ffi::lua_tobuffer(state, 1, &mut length).cast::<u8>();
            if start.checked_add(bytes.len()).is_none_or(|end| end > length) {
                let end = start.saturating_add(bytes.len());
                return Err(Error::Misuse(format!("{start}:{end} is outside a buffer of {length} bytes")));
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.add(start), bytes.len());
            Ok(())
        })
    }

    /// Ask for the script that runs now to be stopped.
    pub fn cancel_now(&self) {
        if self.running.get() {
            self.stop(Stop::Cancelled);
        }
    }
}
