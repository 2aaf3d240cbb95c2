//! Values onto the stack of a coroutine, and off it.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use mlua::ffi::{self, lua_State};

use super::{Core, core_of, script, throw};
use crate::error::{Error, Result};
use crate::stack;
use crate::value::{Callback, Crossing, Kind, Object, Reference, Reply, Value};

pub const CALLBACK: c_int = 1;
pub const OBJECT: c_int = 2;

pub type Held<T> = Arc<T>;

/// The bytes of a string, which live as long as it is on the stack.
pub unsafe fn bytes<'a>(state: *mut lua_State, index: c_int) -> Option<&'a [u8]> {
    // SAFETY: a Luau string stays where it is.
    unsafe {
        if ffi::lua_type(state, index) != ffi::LUA_TSTRING {
            return None;
        }
        let mut length = 0;
        let data = ffi::lua_tolstring(state, index, &mut length);
        Some(std::slice::from_raw_parts(data.cast(), length))
    }
}

pub unsafe fn push_text(state: *mut lua_State, text: &[u8]) {
    // SAFETY: the pointer is valid for the length.
    unsafe { ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len()) };
}

unsafe extern "C" fn drop_callback(_: *mut lua_State, held: *mut c_void) {
    // SAFETY: a userdata with this tag holds one of these.
    unsafe { std::ptr::drop_in_place(held.cast::<Held<dyn Callback>>()) };
}

unsafe extern "C" fn drop_object(_: *mut lua_State, held: *mut c_void) {
    // SAFETY: a userdata with this tag holds one of these.
    unsafe { std::ptr::drop_in_place(held.cast::<Held<dyn Object>>()) };
}

/// Teach a VM about host functions and host objects.
pub unsafe fn set_up(state: *mut lua_State) {
    // SAFETY: called protected, once for a VM.
    unsafe {
        ffi::lua_setuserdatadtor(state, CALLBACK, Some(drop_callback));
        ffi::lua_setuserdatadtor(state, OBJECT, Some(drop_object));
        ffi::lua_createtable(state, 0, 6);
        for (name, function) in [
            (c"__tostring", object_text as ffi::lua_CFunction),
            (c"__index", get_field),
            (c"__newindex", set_field),
            (c"__eq", are_same),
            (c"__concat", object_concat),
        ] {
            ffi::lua_pushcclosurek(state, function, name.as_ptr(), 0, None);
            ffi::lua_rawsetfield(state, -2, name.as_ptr());
        }
        push_text(state, b"The metatable is locked");
        ffi::lua_rawsetfield(state, -2, c"__metatable".as_ptr());
        ffi::lua_setreadonly(state, -1, 1);
        ffi::lua_setuserdatametatable(state, OBJECT);
    }
}

pub unsafe fn object<'a>(state: *mut lua_State, index: c_int) -> Option<&'a Held<dyn Object>> {
    // SAFETY: a userdata with this tag holds one of these.
    unsafe { ffi::lua_touserdatatagged(state, index, OBJECT).cast::<Held<dyn Object>>().as_ref() }
}

unsafe extern "C-unwind" fn object_text(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        match object(state, 1) {
            Some(object) => push_text(state, object.message().as_bytes()),
            None => push_text(state, b"userdata"),
        }
    }
    1
}

unsafe extern "C-unwind" fn get_field(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let (Some(object), Some(name)) = (object(state, 1).cloned(), bytes(state, 2)) else {
            ffi::lua_pushnil(state);
            return 1;
        };
        let found = core_of(state).ask_host(state, || object.get(name));
        drop(object);
        match found {
            Ok(value) => core_of(state).push_results(state, std::slice::from_ref(&value)),
            Err(error) => raise(state, error),
        }
    }
}

unsafe extern "C-unwind" fn set_field(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let core = core_of(state);
        let (Some(object), Some(name)) = (object(state, 1).cloned(), bytes(state, 2)) else {
            throw(state, "a field of an object is named by a string")
        };
        let value = match core.read(state, 3, Crossing::Deep) {
            Ok(value) => value,
            Err(error) => {
                drop(object);
                throw(state, &explain(&error))
            }
        };
        let set = core.ask_host(state, || object.set(name, value));
        drop(object);
        match set {
            Ok(()) => 0,
            Err(error) => raise(state, error),
        }
    }
}

unsafe extern "C-unwind" fn are_same(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let same = match (object(state, 1), object(state, 2)) {
            (Some(left), Some(right)) => left.same(&**right),
            _ => false,
        };
        ffi::lua_pushboolean(state, c_int::from(same));
    }
    1
}

/// Raise a value of the host's in the script.
unsafe fn raise(state: *mut lua_State, value: Value) -> c_int {
    // SAFETY: called by a function that the VM called.
    unsafe {
        if let Value::Text(text) = &value {
            let message = String::from_utf8_lossy(text).into_owned();
            drop(value);
            throw(state, &message);
        }
        if let Err(error) = core_of(state).push(state, &value) {
            throw(state, &explain(&error));
        }
        drop(value);
        ffi::lua_error(state)
    }
}

unsafe extern "C-unwind" fn object_concat(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        ffi::luaL_tolstring_(state, 1, std::ptr::null_mut());
        ffi::luaL_tolstring_(state, 2, std::ptr::null_mut());
        ffi::lua_concat(state, 2);
    }
    1
}

/// What runs when a script calls a host function.
pub unsafe extern "C-unwind" fn call_host(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM; the first upvalue is the callback.
    unsafe {
        if !stack::has_room() {
            throw(state, "stack overflow");
        }
        let core = core_of(state);
        let callback = &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<Held<dyn Callback>>();
        let callback = callback.clone();
        let crossing = if callback.shallow() { Crossing::Shallow } else { Crossing::Deep };
        let arguments = match core.read_range(state, 1, ffi::lua_gettop(state), crossing) {
            Ok(arguments) => arguments,
            Err(error) => throw(state, &explain(&error)),
        };
        answer(core, state, callback, arguments)
    }
}

/// Call the host, and leave the results on the stack.
unsafe fn answer(core: &Core, state: *mut lua_State, callback: Held<dyn Callback>, arguments: Vec<Value>) -> c_int {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let reply = core.ask_host(state, || callback.call(arguments));
        drop(callback);
        ffi::lua_settop(state, 0);
        match reply {
            Ok(Reply::Return(values)) => core.push_results(state, &values),
            Ok(Reply::Yield { values, then }) => {
                // The first slot is for `continue_host`.
                match then {
                    Some(then) => push_held(state, then),
                    None => ffi::lua_pushnil(state),
                }
                let count = core.push_results(state, &values);
                ffi::lua_yield(state, count)
            }
            Ok(Reply::Await(value)) => {
                if let Some(problem) = script::why_not_await(core, state) {
                    drop(value);
                    throw(state, problem);
                }
                // The first slot is for `continue_host`.
                ffi::lua_pushnil(state);
                script::ask(core, state, AWAIT.to_owned(), vec![value])
            }
            Err(value) => {
                if let Err(error) = core.push(state, &value) {
                    throw(state, &explain(&error));
                }
                drop(value);
                ffi::lua_error(state)
            }
        }
    }
}

/// What runs when a coroutine that a host function suspended is resumed.
unsafe extern "C-unwind" fn continue_host(state: *mut lua_State, _: c_int) -> c_int {
    // SAFETY: called by the VM; the first slot is what `answer` left there.
    unsafe {
        let top = ffi::lua_gettop(state);
        let held = ffi::lua_touserdatatagged(state, 1, CALLBACK).cast::<Held<dyn Callback>>().as_ref();
        let Some(callback) = held.cloned() else { return top - 1 };
        let core = core_of(state);
        match core.read_range(state, 2, top, Crossing::Deep) {
            Ok(arguments) => answer(core, state, callback, arguments),
            Err(error) => throw(state, &explain(&error)),
        }
    }
}

/// The name of a request whose one argument the host awaits.
const AWAIT: &str = "await";

/// The message of a conversion error, for the script.
pub fn explain(error: &Error) -> String {
    match error {
        Error::Conversion(message) | Error::Misuse(message) => message.clone(),
        _ => "the value cannot cross".to_owned(),
    }
}

impl Core {
    /// Run something of the host's that may use the VM again.
    pub unsafe fn ask_host<T>(&self, state: *mut lua_State, body: impl FnOnce() -> T) -> T {
        let before = self.current.replace(state);
        let result = body();
        self.current.set(before);
        self.forget();
        result
    }

    unsafe fn push_results(&self, state: *mut lua_State, values: &[Value]) -> c_int {
        // SAFETY: called by a function that the VM called.
        unsafe {
            match self.push_all(state, values) {
                Ok(count) => count,
                Err(error) => throw(state, &explain(&error)),
            }
        }
    }

    /// Push several values; return their number.
    pub unsafe fn push_all(&self, state: *mut lua_State, values: &[Value]) -> Result<c_int> {
        // SAFETY: called protected.
        unsafe {
            let count = c_int::try_from(values.len()).unwrap_or(c_int::MAX);
            if ffi::lua_checkstack(state, count.saturating_add(8)) == 0 {
                return Err(Error::Conversion("too many values".to_owned()));
            }
            for value in values {
                self.push(state, value)?;
            }
            Ok(count)
        }
    }

    /// Push one value.
    pub unsafe fn push(&self, state: *mut lua_State, value: &Value) -> Result<()> {
        // SAFETY: called protected.
        unsafe {
            match value {
                Value::Nil => ffi::lua_pushnil(state),
                Value::Boolean(flag) => ffi::lua_pushboolean(state, c_int::from(*flag)),
                Value::Number(number) => ffi::lua_pushnumber(state, *number),
                Value::Integer(number) => ffi::lua_pushinteger64(state, *number),
                Value::Text(text) => push_text(state, text),
                Value::Buffer(data) => {
                    let place = ffi::lua_newbuffer(state, data.len()).cast::<u8>();
                    std::ptr::copy_nonoverlapping(data.as_ptr(), place, data.len());
                }
                Value::Vector([x, y, z]) => ffi::lua_pushvector(state, *x, *y, *z),
                Value::List(items) => self.push_list(state, items)?,
                Value::Map(pairs) => self.push_map(state, pairs)?,
                Value::Reference(reference) => self.push_reference(state, reference)?,
                Value::Callback(callback) => push_callback(state, callback.clone()),
                Value::Object(object) => {
                    let held: Held<dyn Object> = object.clone();
                    let size = size_of::<Held<dyn Object>>();
                    let place = ffi::lua_newuserdatataggedwithmetatable(state, size, OBJECT);
                    place.cast::<Held<dyn Object>>().write(held);
                }
            }
        }
        Ok(())
    }

    unsafe fn push_list(&self, state: *mut lua_State, items: &[Value]) -> Result<()> {
        // SAFETY: called protected.
        unsafe {
            room(state);
            ffi::lua_createtable(state, c_int::try_from(items.len()).unwrap_or(0), 0);
            for (index, item) in (1..).zip(items) {
                self.push(state, item)?;
                ffi::lua_rawseti_(state, -2, index);
            }
            self.mark_array(state);
        }
        Ok(())
    }

    /// Remember that the table on top is a list, even when it is empty.
    pub unsafe fn mark_array(&self, state: *mut lua_State) {
        // SAFETY: called protected.
        unsafe {
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.marks.array);
            ffi::lua_setmetatable(state, -2);
        }
    }

    unsafe fn push_map(&self, state: *mut lua_State, pairs: &[(Value, Value)]) -> Result<()> {
        // SAFETY: called protected.
        unsafe {
            room(state);
            ffi::lua_createtable(state, 0, c_int::try_from(pairs.len()).unwrap_or(0));
            for (key, value) in pairs {
                if matches!(key, Value::Nil) || matches!(key, Value::Number(number) if number.is_nan()) {
                    return Err(Error::Conversion(format!("{} cannot be a key of a table", key.describe())));
                }
                self.push(state, key)?;
                self.push(state, value)?;
                ffi::lua_rawset(state, -3);
            }
        }
        Ok(())
    }

    pub unsafe fn push_reference(&self, state: *mut lua_State, reference: &Reference) -> Result<()> {
        if !Arc::ptr_eq(&reference.home, &self.forgotten) {
            return Err(Error::Conversion("the value belongs to another state".to_owned()));
        }
        // SAFETY: the reference holds its slot until it is dropped.
        unsafe { ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, reference.id) };
        Ok(())
    }

    /// Anchor a value for the host.
    pub unsafe fn refer(&self, state: *mut lua_State, index: c_int, kind: Kind) -> Value {
        // SAFETY: called protected.
        let id = unsafe { ffi::lua_ref(state, index) };
        Value::Reference(Arc::new(Reference { id, kind, home: self.forgotten.clone() }))
    }
}

/// Make sure of a few free slots.
pub unsafe fn room(state: *mut lua_State) {
    // SAFETY: called protected; raises if memory is short.
    unsafe { ffi::luaL_checkstack_(state, 8, std::ptr::null()) };
}

unsafe fn push_held(state: *mut lua_State, callback: Held<dyn Callback>) {
    // SAFETY: called protected.
    unsafe {
        let place = ffi::lua_newuserdatatagged(state, size_of::<Held<dyn Callback>>(), CALLBACK);
        place.cast::<Held<dyn Callback>>().write(callback);
    }
}

unsafe fn push_callback(state: *mut lua_State, callback: Held<dyn Callback>) {
    // SAFETY: called protected.
    unsafe {
        push_held(state, callback);
        ffi::lua_pushcclosurek(state, call_host, c"host".as_ptr(), 1, Some(continue_host));
    }
}
