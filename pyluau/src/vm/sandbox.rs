//! What a script finds when it starts.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::{Core, Marks, coroutine, cross, library, script};
use crate::error::{Error, Result};
use crate::value::{Kind, Reference, Value};

/// Globals that reach past a script's own environment.
const REMOVED: [&std::ffi::CStr; 2] = [c"getfenv", c"setfenv"];

/// Repairs that the makers of Luau still keep behind switches. Without them a script can crash the process with
/// `table.move`, or keep it busy there past every interrupt, and a table that runs out of memory may be left broken.
const REPAIRS: [&str; 5] = [
    "LuauTableArrayAdjustCheck",
    "LuauTableArrayShrinkOrder",
    "LuauTableRobustOom",
    "LuauTableMoveTimeoutFix",
    "LuauSandboxFreezesVectorMetatable",
];

/// Switch the repairs on, before the first VM is made.
pub fn repair() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for name in REPAIRS {
            super::set_flag(name, true);
        }
    });
}

/// Furnish a new VM.
pub unsafe fn set_up(core: &Core, state: *mut lua_State, marks: &mut Marks, natives: &mut library::Natives) {
    // SAFETY: called protected, once for a VM.
    unsafe {
        ffi::luaL_openlibs(state);
        cross::set_up(state);
        library::set_up(state, core.options.sandbox, natives);
        ffi::lua_getfield(state, ffi::LUA_GLOBALSINDEX, c"coroutine".as_ptr());
        coroutine::set_up(state);
        ffi::lua_settop(state, -2);
        marks.array = frozen(state, |_| {});
        marks.weak = frozen(state, |state| {
            cross::push_text(state, b"k");
            ffi::lua_rawsetfield(state, -2, c"__mode".as_ptr());
        });
        marks.environment = frozen(state, |state| {
            ffi::lua_pushvalue(state, ffi::LUA_GLOBALSINDEX);
            ffi::lua_rawsetfield(state, -2, c"__index".as_ptr());
            cross::push_text(state, b"The metatable is locked");
            ffi::lua_rawsetfield(state, -2, c"__metatable".as_ptr());
        });
        marks.loader = ffi::lua_newthread(state);
        ffi::lua_ref(state, -1);
        ffi::lua_settop(state, -2);
        // It is not a script's.
        core.base_scope.coroutines.store(0, std::sync::atomic::Ordering::Relaxed);
        script::push_primitives(state);
        marks.primitives = ffi::lua_ref(state, -1);
        ffi::lua_settop(state, -2);
        if core.options.sandbox {
            for name in REMOVED {
                ffi::lua_pushnil(state);
                ffi::lua_setfield(state, ffi::LUA_GLOBALSINDEX, name.as_ptr());
            }
            ffi::luaL_sandbox_(state);
        }
        if core.options.native && super::native_supported() {
            ffi::luau_codegen_create(state);
        }
    }
}

/// A reference to a table that is now read-only.
unsafe fn frozen(state: *mut lua_State, fill: impl FnOnce(*mut lua_State)) -> c_int {
    // SAFETY: called protected.
    unsafe {
        ffi::lua_createtable(state, 0, 2);
        fill(state);
        ffi::lua_setreadonly(state, -1, 1);
        let reference = ffi::lua_ref(state, -1);
        ffi::lua_settop(state, -2);
        reference
    }
}

impl Core {
    /// Anchor a value for ourselves.
    pub unsafe fn reference(&self, state: *mut lua_State, index: c_int, kind: Kind) -> Reference {
        // SAFETY: called protected.
        let id = unsafe { ffi::lua_ref(state, index) };
        Reference { id, kind, home: self.forgotten.clone() }
    }

    /// Push an environment for a script: a given table as it is, given values in a fresh one, or a fresh one.
    pub unsafe fn push_environment(&self, state: *mut lua_State, given: Option<&Value>) -> Result<()> {
        // SAFETY: called protected.
        unsafe {
            match given {
                None if self.options.sandbox => self.fresh_environment(state, &[])?,
                None => ffi::lua_pushvalue(state, ffi::LUA_GLOBALSINDEX),
                Some(Value::Map(pairs)) => self.fresh_environment(state, pairs)?,
                Some(Value::Reference(reference)) if reference.kind == Kind::Table => {
                    self.push_reference(state, reference)?;
                }
                Some(other) => {
                    let message = format!("an environment is a table, not a {}", other.type_name());
                    return Err(Error::Conversion(message));
                }
            }
        }
        Ok(())
    }

    unsafe fn fresh_environment(&self, state: *mut lua_State, pairs: &[(Value, Value)]) -> Result<()> {
        // SAFETY: called protected.
        unsafe {
            ffi::lua_createtable(state, 0, c_int::try_from(pairs.len()).unwrap_or(0).saturating_add(2));
            let mut safe = true;
            for (key, value) in pairs {
                self.push(state, key)?;
                ffi::lua_pushvalue(state, -1);
                // Where a library is replaced, the VM must not take short cuts to its own.
                safe &= ffi::lua_rawget(state, ffi::LUA_GLOBALSINDEX) == ffi::LUA_TNIL;
                ffi::lua_settop(state, -2);
                self.push(state, value)?;
                ffi::lua_rawset(state, -3);
            }
            ffi::lua_pushvalue(state, -1);
            ffi::lua_rawsetfield(state, -2, c"_G".as_ptr());
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.marks.environment);
            ffi::lua_setmetatable(state, -2);
            ffi::lua_setsafeenv(state, -1, c_int::from(safe));
        }
        Ok(())
    }

    /// Put the primitives into the environment on top of the stack.
    pub unsafe fn expose(&self, state: *mut lua_State) {
        // SAFETY: called protected.
        unsafe {
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.marks.primitives);
            for name in [c"request", c"spawn", c"park", c"wake", c"array"] {
                ffi::lua_rawgetfield(state, -1, name.as_ptr());
                ffi::lua_rawsetfield(state, -3, name.as_ptr());
            }
            ffi::lua_settop(state, -2);
        }
    }

    /// Set a global of the VM itself, which no script can.
    pub fn set_global(&self, name: &str, value: &Value) -> Result<()> {
        // SAFETY: protected.
        self.protect(|state| unsafe {
            cross::push_text(state, name.as_bytes());
            self.push(state, value)?;
            let read_only = ffi::lua_getreadonly(state, ffi::LUA_GLOBALSINDEX);
            ffi::lua_setreadonly(state, ffi::LUA_GLOBALSINDEX, 0);
            ffi::lua_rawset(state, ffi::LUA_GLOBALSINDEX);
            ffi::lua_setreadonly(state, ffi::LUA_GLOBALSINDEX, read_only);
            Ok(())
        })
    }
}
