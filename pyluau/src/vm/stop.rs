//! Limits at work: what stops a script at its safe points.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use mlua::ffi::{self, lua_State};

use super::{Core, Scope, core_of, throw, traceback};
use crate::error::Stop;

/// How often the host is asked.
const POLL: Duration = Duration::from_millis(100);

type Interrupt = unsafe extern "C-unwind" fn(*mut lua_State, c_int);

impl Core {
    /// Make the alarm and the allocator set the VM's interrupt when there is something to check.
    pub(super) fn attach(&self) {
        // SAFETY: the slot is in the VM; `Core::drop` detaches before it frees the VM.
        unsafe { self.alarm.attach(self.interrupt_slot(), interrupt as Interrupt as *mut c_void) };
        self.memory.attach(self.interrupt_slot(), interrupt as Interrupt as *mut c_void);
    }

    fn interrupt_slot(&self) -> *const AtomicPtr<c_void> {
        // SAFETY: an optional function pointer has the layout of a pointer, and the field lives as long as the VM.
        unsafe { (&raw mut (*ffi::lua_callbacks(self.main)).interrupt).cast_const().cast() }
    }

    /// Have the VM call `interrupt` at its safe points, or not.
    pub(super) fn listen(&self, on: bool) {
        let handler = if on { interrupt as Interrupt as *mut c_void } else { std::ptr::null_mut() };
        // SAFETY: see `interrupt_slot`.
        unsafe { (*self.interrupt_slot()).store(handler, Ordering::Release) };
    }

    pub(super) fn out_of_memory(&self) -> Stop {
        Stop::Memory { limit: self.memory.limit.get() }
    }

    /// Stop the script at its next safe point, and at each one after that.
    pub(super) fn stop(&self, reason: Stop) {
        let mut stop = self.stop.borrow_mut();
        if stop.is_none() {
            *stop = Some(reason);
        }
        drop(stop);
        self.listen(true);
    }

    /// Record where a coroutine was stopped; the first place counts.
    pub(super) unsafe fn note_stop(&self, state: *mut lua_State) {
        let mut stopped_at = self.stopped_at.borrow_mut();
        if stopped_at.is_empty() {
            // SAFETY: the caller passes a coroutine whose frames exist.
            *stopped_at = unsafe { traceback(state, 0) };
        }
    }

    /// Collect all garbage; a VM that is near its limit would not do so by itself in time.
    pub(super) fn tidy(&self) {
        // SAFETY: at a safe point; collecting raises nothing.
        unsafe { ffi::lua_gc(self.current.get(), ffi::LUA_GCCOLLECT, 0) };
        let (used, limit) = (self.memory.used.get(), self.memory.limit.get());
        self.memory.tidy_at.set(used.saturating_add((limit.saturating_sub(used)) / 2).max(limit / 4 * 3));
    }

    pub(super) fn begin(&self, scope: &Arc<Scope>) {
        if self.memory.used.get() > self.memory.tidy_at.get() {
            self.tidy();
        }
        self.listen(scope.limits.instructions.is_some());
        self.alarm.begin();
        scope.resume();
        if let Some(stop) = scope.exceeded() {
            self.stop(stop);
            return;
        }
        self.arm(scope);
    }

    /// Look again when a limit can have been passed, and now and then anyway.
    fn arm(&self, scope: &Scope) {
        self.alarm.arm(scope.time_left().map_or(POLL, |left| left.min(POLL)));
    }

    /// Look at the limits; at a safe point.
    fn check(&self) {
        let scope = self.scope();
        if self.memory.refused.get() {
            self.stop(self.out_of_memory());
        }
        if self.alarm.cancelled() || (self.options.poll)() {
            self.stop(Stop::Cancelled);
        }
        match scope.exceeded() {
            Some(stop) => self.stop(stop),
            None => self.arm(&scope),
        }
    }

    /// Count one safe point; return whether the scope counts them.
    fn count(&self) -> bool {
        let scope = self.scope.borrow();
        match scope.count() {
            Some(true) => true,
            Some(false) => {
                let limit = scope.limits.instructions.unwrap_or(0);
                drop(scope);
                self.stop(Stop::Instructions { limit });
                true
            }
            None => false,
        }
    }
}

/// Called at the safe points of a script while there is something to look at.
unsafe extern "C-unwind" fn interrupt(state: *mut lua_State, gc: c_int) {
    if gc >= 0 {
        return;
    }
    // SAFETY: called by the VM at a safe point, where raising an error is allowed.
    unsafe {
        let core = core_of(state);
        let counting = core.count();
        if core.memory.used.get() > core.memory.tidy_at.get() {
            core.tidy();
        }
        if core.alarm.take() || core.memory.refused.get() {
            core.check();
        }
        if core.stop.borrow().is_some() {
            core.note_stop(state);
            throw(state, "the script was stopped");
        }
        if !counting {
            core.listen(false);
            if core.alarm.is_ringing() {
                core.listen(true);
            }
        }
    }
}
