//! Luau's `coroutine` library, for coroutines that may wait for the host.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mlua::ffi::{self, lua_State};

use super::{Core, core_of, has_room, throw};
use crate::error::Stop;
use crate::step::{Go, Ready};

/// What a coroutine waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Nothing,
    /// The answer to a call.
    Host(u64),
    /// Its waker.
    Parked,
    /// A wrapped coroutine that waits itself.
    Wrapped(*mut lua_State),
    /// Its turn.
    Turn,
}

/// What we know of a coroutine; it is freed with it.
pub struct Record {
    pub wait: Cell<Wait>,
    /// The coroutine that called this one through `coroutine.wrap` and waits for it.
    pub caller: Cell<*mut lua_State>,
    /// It continued without its resumer; the values it yielded, returned or raised are still on its stack.
    pub kept: Cell<Option<c_int>>,
    /// It was made by `spawn`: an uncaught error ends the script.
    pub spawned: Cell<bool>,
    count: Arc<AtomicUsize>,
}

/// Called by the VM when a coroutine is created or freed.
pub unsafe extern "C-unwind" fn on_thread(parent: *mut lua_State, state: *mut lua_State) {
    // SAFETY: called by the VM; the data of a coroutine is ours alone.
    unsafe {
        if parent.is_null() {
            let record = ffi::lua_getthreaddata(state).cast::<Record>();
            if !record.is_null() {
                let record = Box::from_raw(record);
                record.count.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        }
        let count = core_of(parent).scope.borrow().coroutines.clone();
        count.fetch_add(1, Ordering::Relaxed);
        let record = Box::new(Record {
            wait: Cell::new(Wait::Nothing),
            caller: Cell::new(std::ptr::null_mut()),
            kept: Cell::new(None),
            spawned: Cell::new(false),
            count,
        });
        ffi::lua_setthreaddata(state, Box::into_raw(record).cast());
    }
}

/// What we know of this coroutine; nothing of the VM's main one.
pub unsafe fn record<'a>(state: *mut lua_State) -> Option<&'a Record> {
    // SAFETY: see `on_thread`.
    unsafe { ffi::lua_getthreaddata(state).cast::<Record>().as_ref() }
}

pub fn waits(state: *mut lua_State) -> bool {
    // SAFETY: see `record`.
    unsafe { record(state) }.is_some_and(|record| record.wait.get() != Wait::Nothing)
}

/// The outcome of resuming a coroutine.
pub enum Back {
    /// With values, on its own stack.
    Values(c_int),
    /// With an error, on top of the stack of its resumer.
    Error,
    /// It waits for the host.
    Waits,
}

/// Make a coroutine of the function at `index`; it is pushed.
pub unsafe fn create(core: &Core, state: *mut lua_State, index: c_int) -> *mut lua_State {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let scope = core.scope();
        // The one that runs the main function is not the script's own.
        let main = usize::from(!scope.main.get().is_null());
        if let Some(limit) = scope.limits.coroutines
            && scope.coroutines.load(Ordering::Relaxed) >= limit + main
        {
            // Unreferenced coroutines do not count.
            ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0);
            if scope.coroutines.load(Ordering::Relaxed) >= limit + main {
                core.stop(Stop::Coroutines { limit });
                core.note_stop(state);
                throw(state, "too many coroutines");
            }
        }
        let index = ffi::lua_absindex(state, index);
        let coroutine = ffi::lua_newthread(state);
        ffi::lua_xpush(state, coroutine, index);
        coroutine
    }
}

/// Let a coroutine's globals be those of the function at `index`.
pub unsafe fn share_environment(state: *mut lua_State, coroutine: *mut lua_State, index: c_int) {
    // SAFETY: called protected; both are of one VM.
    unsafe {
        if ffi::lua_isLfunction(state, index) != 0 {
            ffi::lua_getfenv(state, index);
            ffi::lua_xmove(state, coroutine, 1);
            ffi::lua_replace(coroutine, ffi::LUA_GLOBALSINDEX);
        }
    }
}

unsafe fn status_name(state: *mut lua_State, coroutine: *mut lua_State) -> &'static str {
    // SAFETY: both are living coroutines.
    unsafe {
        if record(coroutine).is_some_and(|known| known.kept.get().is_some()) {
            return "suspended";
        }
        match ffi::lua_costatus(state, coroutine) {
            ffi::LUA_CORUN => "running",
            ffi::LUA_COSUS => "suspended",
            ffi::LUA_CONOR => "normal",
            _ => "dead",
        }
    }
}

/// Resume as a script does, with the top `arguments` values of `state`.
pub unsafe fn resume(state: *mut lua_State, coroutine: *mut lua_State, arguments: c_int) -> Back {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let known = record(coroutine);
        let fail = |message: &str| {
            super::cross::push_text(state, message.as_bytes());
            Back::Error
        };
        match known.map(|known| known.wait.get()) {
            None | Some(Wait::Nothing) => {}
            Some(Wait::Parked) => return fail("coroutine is parked"),
            Some(_) => return fail("coroutine is waiting for the host"),
        }
        if let Some(status) = known.and_then(|known| known.kept.take()) {
            ffi::lua_settop(state, -arguments - 1);
            return come_back(state, coroutine, status);
        }
        // One that yielded is suspended; the others need a closer look.
        if ffi::lua_status(coroutine) != ffi::LUA_YIELD && ffi::lua_costatus(state, coroutine) != ffi::LUA_COSUS {
            return fail(&format!("cannot resume {} coroutine", status_name(state, coroutine)));
        }
        if arguments > 0 {
            if !has_room(coroutine, arguments) {
                throw(state, "too many arguments to resume");
            }
            ffi::lua_xmove(state, coroutine, arguments);
        }
        let status = ffi::lua_resume_(coroutine, state, arguments);
        come_back(state, coroutine, status)
    }
}

unsafe fn come_back(state: *mut lua_State, coroutine: *mut lua_State, status: c_int) -> Back {
    // SAFETY: as `resume`.
    unsafe {
        match status {
            ffi::LUA_OK | ffi::LUA_YIELD if waits(coroutine) => Back::Waits,
            ffi::LUA_OK | ffi::LUA_YIELD => Back::Values(ffi::lua_gettop(coroutine)),
            _ => {
                let core = core_of(state);
                if core.memory.refused.get() {
                    core.note_stop(coroutine);
                }
                ffi::lua_xmove(coroutine, state, 1);
                Back::Error
            }
        }
    }
}

unsafe fn take_values(state: *mut lua_State, coroutine: *mut lua_State, count: c_int) {
    // SAFETY: as `resume`.
    unsafe {
        // A function that the VM calls has room for twenty values.
        if count >= ffi::LUA_MINSTACK && !has_room(state, count + 1) {
            throw(state, "too many results to resume");
        }
        ffi::lua_xmove(coroutine, state, count);
    }
}

unsafe fn check_thread(state: *mut lua_State) -> *mut lua_State {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let coroutine = ffi::lua_tothread(state, 1);
        if coroutine.is_null() {
            ffi::luaL_typeerror(state, 1, c"thread".as_ptr());
        }
        coroutine
    }
}

unsafe extern "C-unwind" fn lua_create(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        create(core_of(state), state, 1);
    }
    1
}

unsafe extern "C-unwind" fn lua_resume(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let coroutine = check_thread(state);
        match resume(state, coroutine, ffi::lua_gettop(state) - 1) {
            Back::Values(count) => {
                ffi::lua_settop(state, 0);
                ffi::lua_pushboolean(state, 1);
                take_values(state, coroutine, count);
                count + 1
            }
            Back::Error => {
                ffi::lua_pushboolean(state, 0);
                ffi::lua_insert(state, -2);
                2
            }
            Back::Waits => {
                ffi::lua_pushboolean(state, 1);
                1
            }
        }
    }
}

unsafe extern "C-unwind" fn lua_wrap(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        lua_create(state);
        ffi::lua_pushcclosurek(state, call_wrapped, c"wrap".as_ptr(), 1, None);
    }
    1
}

unsafe extern "C-unwind" fn call_wrapped(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM; the upvalue is the coroutine.
    unsafe {
        let coroutine = ffi::lua_tothread(state, ffi::lua_upvalueindex(1));
        match resume(state, coroutine, ffi::lua_gettop(state)) {
            Back::Values(count) => {
                take_values(state, coroutine, count);
                count
            }
            Back::Error => {
                if ffi::lua_isstring(state, -1) != 0 {
                    ffi::luaL_where(state, 1);
                    ffi::lua_insert(state, -2);
                    ffi::lua_concat(state, 2);
                }
                ffi::lua_error(state)
            }
            Back::Waits => {
                check_can_wait(state);
                if let Some(inner) = record(coroutine) {
                    inner.caller.set(state);
                }
                suspend(state, Wait::Wrapped(coroutine))
            }
        }
    }
}

/// Suspend the running coroutine until it is woken.
pub unsafe fn suspend(state: *mut lua_State, wait: Wait) -> c_int {
    // SAFETY: called by a function that the VM called, which returns what this returns.
    unsafe {
        let Some(known) = record(state) else { throw(state, CANNOT_WAIT) };
        anchor(core_of(state), state, true);
        known.wait.set(wait);
        ffi::lua_yield(state, 0)
    }
}

/// Anchor a coroutine while it waits, or release it.
pub unsafe fn anchor(core: &Core, coroutine: *mut lua_State, keep: bool) {
    // SAFETY: called protected; a waiting coroutine has room for three values.
    unsafe {
        let scope = core.scope.borrow();
        let anchors = scope.anchors.borrow();
        let Some(anchors) = anchors.as_ref() else { return };
        ffi::lua_rawcheckstack(coroutine, 3);
        ffi::lua_rawgeti_(coroutine, ffi::LUA_REGISTRYINDEX, anchors.id);
        ffi::lua_pushthread(coroutine);
        if keep {
            ffi::lua_pushboolean(coroutine, 1);
        } else {
            ffi::lua_pushnil(coroutine);
        }
        ffi::lua_rawset(coroutine, -3);
        ffi::lua_settop(coroutine, -2);
    }
}

pub const CANNOT_WAIT: &str =
    "cannot wait for the host here (inside a metamethod, an iterator, a sort or a gsub callback)";

/// Raise a clear error where Luau cannot suspend.
pub unsafe fn check_can_wait(state: *mut lua_State) {
    // SAFETY: called by a function that the VM called.
    unsafe {
        if record(state).is_none() || ffi::lua_isyieldable(state) == 0 {
            throw(state, CANNOT_WAIT);
        }
    }
}

/// Tell a waiting coroutine to go on when it is its turn.
pub unsafe fn make_ready(core: &Core, coroutine: *mut lua_State, go: Go) {
    // SAFETY: the coroutine waits, so it is anchored.
    unsafe {
        let Some(known) = record(coroutine) else { return };
        known.wait.set(Wait::Turn);
        core.scope.borrow().board.borrow_mut().ready.push_back(Ready { coroutine, go });
    }
}

/// Pass the outcome of a coroutine to its waiting resumer, or store it for the next resume.
pub unsafe fn settle(core: &Core, coroutine: *mut lua_State, status: c_int) {
    // SAFETY: called protected, after the stepper or `spawn` resumed the coroutine.
    unsafe {
        let Some(known) = record(coroutine) else { return };
        let failed = status != ffi::LUA_OK && status != ffi::LUA_YIELD;
        if !failed && known.wait.get() != Wait::Nothing {
            return;
        }
        let caller = known.caller.replace(std::ptr::null_mut());
        if !caller.is_null() {
            let count = if failed { 1 } else { ffi::lua_gettop(coroutine) };
            if !has_room(caller, count) {
                ffi::lua_settop(coroutine, 0);
                super::cross::push_text(caller, b"too many results to resume");
                make_ready(core, caller, Go::Error);
                return;
            }
            ffi::lua_xmove(coroutine, caller, count);
            make_ready(core, caller, if failed { Go::Error } else { Go::Values(count) });
        } else if failed && known.spawned.get() {
            core.traceback.replace(super::traceback(coroutine, 0));
            core.uncaught.set(ffi::lua_ref(coroutine, -1));
            core.stop(Stop::Uncaught);
        } else {
            known.kept.set(Some(status));
        }
    }
}

/// Remove the pending request of a coroutine.
unsafe fn give_up(core: &Core, coroutine: *mut lua_State) {
    // SAFETY: the coroutine is suspended.
    unsafe {
        let Some(known) = record(coroutine) else { return };
        match known.wait.replace(Wait::Nothing) {
            Wait::Host(id) => core.scope.borrow().board.borrow_mut().drop_call(id),
            Wait::Wrapped(inner) => {
                if let Some(inner) = record(inner) {
                    inner.caller.set(std::ptr::null_mut());
                }
            }
            _ => {}
        }
        anchor(core, coroutine, false);
        known.kept.set(None);
        let caller = known.caller.replace(std::ptr::null_mut());
        if !caller.is_null() {
            super::cross::push_text(caller, b"the coroutine was closed");
            make_ready(core, caller, Go::Error);
        }
    }
}

/// Close a coroutine that does not run: `None`, or the error it ended with is pushed on `state`.
pub unsafe fn close(core: &Core, state: *mut lua_State, coroutine: *mut lua_State) -> bool {
    // SAFETY: called by a function that the VM called.
    unsafe {
        let failed = ffi::lua_costatus(state, coroutine) == ffi::LUA_COERR;
        if failed && ffi::lua_gettop(coroutine) > 0 {
            ffi::lua_xmove(coroutine, state, 1);
        } else if failed {
            ffi::lua_pushnil(state);
        }
        give_up(core, coroutine);
        ffi::lua_resetthread(coroutine);
        failed
    }
}

unsafe extern "C-unwind" fn lua_close(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let coroutine = check_thread(state);
        let status = ffi::lua_costatus(state, coroutine);
        if status == ffi::LUA_CORUN || status == ffi::LUA_CONOR {
            throw(state, &format!("cannot close {} coroutine", status_name(state, coroutine)));
        }
        if close(core_of(state), state, coroutine) {
            ffi::lua_pushboolean(state, 0);
            ffi::lua_insert(state, -2);
            2
        } else {
            ffi::lua_pushboolean(state, 1);
            1
        }
    }
}

unsafe extern "C-unwind" fn lua_status(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let coroutine = check_thread(state);
        super::cross::push_text(state, status_name(state, coroutine).as_bytes());
    }
    1
}

/// Put our functions over those of the library, which is on top of the stack.
pub unsafe fn set_up(state: *mut lua_State) {
    // SAFETY: called protected.
    unsafe {
        for (name, function) in [
            (c"create", lua_create as ffi::lua_CFunction),
            (c"resume", lua_resume),
            (c"wrap", lua_wrap),
            (c"close", lua_close),
            (c"status", lua_status),
        ] {
            set_function(state, name, function);
        }
    }
}

/// Set a field of the table on top of the stack.
pub unsafe fn set_function(state: *mut lua_State, name: &'static CStr, function: ffi::lua_CFunction) {
    // SAFETY: called protected.
    unsafe {
        ffi::lua_pushcclosurek(state, function, name.as_ptr(), 0, None);
        ffi::lua_rawsetfield(state, -2, name.as_ptr());
    }
}
