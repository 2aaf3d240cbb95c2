//! A script that is stepped: it runs until all its coroutines wait, and goes on when the host has answered.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Arc;

use mlua::ffi::{self, lua_State};

use super::coroutine::{self, CANNOT_WAIT, Wait, record};
use super::{Core, Optimization, Scope, Surroundings, compile, core_of, cross, has_room, throw};
use crate::error::{Error, Result};
use crate::limits::{Limits, Used};
use crate::step::{Go, Step};
use crate::value::{Crossing, Kind, Reference, Value};

/// Code to run.
pub enum Entry {
    Source {
        text: Vec<u8>,
        chunk: String,
        optimization: Optimization,
    },
    Sealed {
        code: Vec<u8>,
        chunk: String,
    },
    /// Bytecode that our compiler just made.
    Code {
        code: Vec<u8>,
        chunk: String,
    },
    Function(Arc<Reference>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fresh,
    Going,
    Over,
}

pub struct Script {
    scope: Arc<Scope>,
    main: Cell<Option<Arc<Reference>>>,
    stage: Cell<Stage>,
}

// SAFETY: a script is used by the thread that entered its VM; what it drops may be dropped anywhere.
unsafe impl Send for Script {}
// SAFETY: as above.
unsafe impl Sync for Script {}

impl Core {
    /// Push the function an entry stands for.
    pub unsafe fn push_entry(&self, state: *mut lua_State, entry: &Entry, environment: c_int) -> Result<()> {
        // SAFETY: called protected.
        unsafe {
            match entry {
                Entry::Source { text, chunk, optimization } => {
                    self.load(state, &compile(text, chunk, *optimization)?, chunk, environment)
                }
                Entry::Sealed { code, chunk } => self.load(state, self.unseal(code)?, chunk, environment),
                Entry::Code { code, chunk } => self.load(state, code, chunk, environment),
                Entry::Function(reference) => self.push_reference(state, reference),
            }
        }
    }

    /// Replace the function on top by one with the same code, whose globals are in the table at `environment`.
    pub unsafe fn rebind(&self, state: *mut lua_State, environment: c_int) -> Result<()> {
        // SAFETY: called protected.
        unsafe {
            if ffi::lua_isLfunction(state, -1) == 0 {
                return Err(Error::Misuse("a function of the host has no globals".to_owned()));
            }
            ffi::lua_clonefunction(state, -1);
            ffi::lua_remove(state, -2);
            ffi::lua_pushvalue(state, environment);
            ffi::lua_setfenv(state, -2);
        }
        Ok(())
    }
}

impl Script {
    /// Load a script, with an environment of its own, and let the preludes furnish it.
    pub fn new(
        core: &Core,
        entry: &Entry,
        environment: Option<&Value>,
        preludes: &[Entry],
        expose: bool,
        limits: Limits,
        surroundings: &Surroundings,
    ) -> Result<Script> {
        if core.running.get() {
            return Err(Error::Misuse("a stepper cannot be made by a function that the state is calling".to_owned()));
        }
        let scope = Arc::new(Scope::new(limits, surroundings));
        // SAFETY: `run` protects.
        let main = core.run(&scope.clone(), |state| unsafe {
            ffi::lua_createtable(state, 0, 0);
            scope.anchors.replace(Some(core.reference(state, -1, Kind::Table)));
            core.push_environment(state, environment)?;
            if expose {
                core.expose(state);
            }
            for prelude in preludes {
                core.push_entry(state, prelude, 2)?;
                ffi::lua_pushvalue(state, 2);
                ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, core.marks.primitives);
                core.call(state, 2, 0)?;
            }
            core.push_entry(state, entry, 2)?;
            if matches!(entry, Entry::Function(_)) && environment.is_some() {
                core.rebind(state, 2)?;
            }
            let coroutine = ffi::lua_newthread(state);
            ffi::lua_xpush(state, coroutine, -2);
            coroutine::share_environment(state, coroutine, -2);
            scope.main.set(coroutine);
            Ok(core.reference(state, -1, Kind::Thread))
        })?;
        Ok(Script { scope, main: Cell::new(Some(Arc::new(main))), stage: Cell::new(Stage::Fresh) })
    }

    pub fn used(&self) -> Used {
        self.scope.used()
    }

    /// Run with these arguments until every coroutine waits or the main function ended.
    pub fn start(&self, core: &Core, arguments: &[Value]) -> Result<Step> {
        self.expect(core, Stage::Fresh, "the script was started already")?;
        self.stage.set(Stage::Going);
        self.step(core, |state, main| {
            // SAFETY: `step` runs this protected.
            unsafe {
                let count = core.push_all(state, arguments)?;
                hand_over(state, main, count)?;
                resume(core, state, main, Go::Values(count));
            }
            Ok(())
        })
    }

    /// Give a call its results and run on.
    pub fn answer(&self, core: &Core, id: u64, values: &[Value]) -> Result<Step> {
        self.go_on(core, id, values, Go::Values)
    }

    /// Raise an error where a call was made, and run on.
    pub fn fail(&self, core: &Core, id: u64, error: &Value) -> Result<Step> {
        self.go_on(core, id, std::slice::from_ref(error), |_| Go::Error)
    }

    fn go_on(&self, core: &Core, id: u64, values: &[Value], how: impl Fn(c_int) -> Go) -> Result<Step> {
        self.expect(core, Stage::Going, "the script was not started")?;
        let waiting = self.scope.board.borrow_mut().settle(id);
        let Some(coroutine) = waiting else {
            let known = self.scope.board.borrow().knows(id);
            let why = if known { "was answered already, or dropped" } else { "was never made" };
            return Err(Error::Misuse(format!("call {id} {why}")));
        };
        self.step(core, |state, _| {
            // SAFETY: `step` runs this protected; the coroutine waits, so it is anchored.
            unsafe {
                let count = core.push_all(state, values)?;
                hand_over(state, coroutine, count)?;
                resume(core, state, coroutine, how(count));
            }
            Ok(())
        })
    }

    /// Forget the script and whatever it waits for.
    pub fn close(&self) {
        self.stage.set(Stage::Over);
        self.main.take();
        self.scope.anchors.take();
        self.scope.names.take();
    }

    fn expect(&self, core: &Core, stage: Stage, otherwise: &str) -> Result<()> {
        if core.running.get() {
            return Err(Error::Misuse("a script cannot be stepped by a function that the state is calling".to_owned()));
        }
        match self.stage.get() {
            Stage::Over => Err(Error::Misuse("the script is over".to_owned())),
            now if now == stage => Ok(()),
            _ => Err(Error::Misuse(otherwise.to_owned())),
        }
    }

    fn step(&self, core: &Core, begin: impl FnOnce(*mut lua_State, *mut lua_State) -> Result<()>) -> Result<Step> {
        let main = self.scope.main.get();
        let result = core.run(&self.scope, |state| {
            begin(state, main)?;
            // SAFETY: `run` protects.
            unsafe { self.take_turns(core, state, main) }
        });
        if !matches!(result, Ok(Step::Waiting { .. })) {
            self.close();
        }
        result
    }

    /// Run all ready coroutines, then return the state of the script.
    unsafe fn take_turns(&self, core: &Core, state: *mut lua_State, main: *mut lua_State) -> Result<Step> {
        // SAFETY: called protected.
        unsafe {
            loop {
                if let Some(status) = record(main).and_then(|known| known.kept.get()) {
                    if status != ffi::LUA_YIELD {
                        return self.finish(core, state, main, status);
                    }
                    cross::push_text(main, b"attempt to yield from outside a coroutine");
                    if let Some(known) = record(main) {
                        known.kept.set(None);
                    }
                    resume(core, state, main, Go::Error);
                    continue;
                }
                let next = self.scope.board.borrow_mut().ready.pop_front();
                let Some(next) = next else { break };
                // A coroutine that was closed in the meantime has no turn any more.
                if record(next.coroutine).is_some_and(|known| known.wait.get() == Wait::Turn) {
                    resume(core, state, next.coroutine, next.go);
                }
            }
            let mut board = self.scope.board.borrow_mut();
            if board.is_open() { Ok(board.report()) } else { Err(Error::Deadlock) }
        }
    }

    unsafe fn finish(&self, core: &Core, state: *mut lua_State, main: *mut lua_State, status: c_int) -> Result<Step> {
        // SAFETY: called protected; the results or the error are on the stack of the main coroutine.
        unsafe {
            if status == ffi::LUA_OK {
                return Ok(Step::Done(core.read_range(main, 1, ffi::lua_gettop(main), Crossing::Plain)?));
            }
            core.traceback.replace(super::traceback(main, 0));
            ffi::lua_xmove(main, state, 1);
            Err(core.caught(state, status))
        }
    }
}

unsafe fn hand_over(state: *mut lua_State, coroutine: *mut lua_State, count: c_int) -> Result<()> {
    // SAFETY: called protected.
    unsafe {
        if ffi::lua_checkstack(coroutine, count) == 0 {
            return Err(Error::Conversion("too many values".to_owned()));
        }
        ffi::lua_xmove(state, coroutine, count);
    }
    Ok(())
}

/// Let a coroutine go on until it waits, yields or ends.
unsafe fn resume(core: &Core, state: *mut lua_State, coroutine: *mut lua_State, go: Go) {
    // SAFETY: called protected; the coroutine is suspended and its stack holds the values to resume with.
    unsafe {
        if let Some(known) = record(coroutine)
            && known.wait.replace(Wait::Nothing) != Wait::Nothing
        {
            // While it runs, the stack it was started from keeps it alive.
            ffi::lua_rawcheckstack(coroutine, 1);
            ffi::lua_pushthread(coroutine);
            ffi::lua_xmove(coroutine, state, 1);
            coroutine::anchor(core, coroutine, false);
        }
        let status = match go {
            Go::Values(count) => ffi::lua_resume_(coroutine, state, count),
            Go::Error => ffi::lua_resumeerror(coroutine, state),
        };
        coroutine::settle(core, coroutine, status);
        ffi::lua_settop(state, 0);
    }
}

/// `request(name, ...)`: ask the host, and wait for its answer.
unsafe extern "C-unwind" fn request(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let core = core_of(state);
        let scope = core.scope();
        if scope.anchors.borrow().is_none() {
            throw(state, "there is no host to ask: the script is not stepped");
        }
        coroutine::check_can_wait(state);
        let mut length = 0;
        let name = ffi::luaL_checklstring(state, 1, &mut length);
        let name = String::from_utf8_lossy(std::slice::from_raw_parts(name.cast(), length)).into_owned();
        let arguments = match core.read_range(state, 2, ffi::lua_gettop(state), Crossing::Plain) {
            Ok(arguments) => arguments,
            Err(error) => throw(state, &format!("cannot ask the host for '{name}': {}", cross::explain(&error))),
        };
        drop(scope);
        ask(core, state, name, arguments)
    }
}

/// Note a request of the running coroutine, and suspend it.
pub unsafe fn ask(core: &Core, state: *mut lua_State, name: String, arguments: Vec<Value>) -> c_int {
    // SAFETY: called by a function that the VM called, which returns what this returns.
    unsafe {
        let id = core.scope.borrow().board.borrow_mut().ask(state, name, arguments);
        coroutine::suspend(state, Wait::Host(id))
    }
}

/// Why a host function that must be awaited cannot be, if it cannot.
pub unsafe fn why_not_await(core: &Core, state: *mut lua_State) -> Option<&'static str> {
    // SAFETY: called by a function that the VM called.
    unsafe {
        if core.scope.borrow().anchors.borrow().is_none() {
            return Some("an async function of the host can be called only while the host awaits the script");
        }
        (record(state).is_none() || ffi::lua_isyieldable(state) == 0).then_some(CANNOT_WAIT)
    }
}

/// `spawn(f, ...) -> thread`: run a function beside this one, at once, until it first waits.
unsafe extern "C-unwind" fn spawn(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        let core = core_of(state);
        let count = ffi::lua_gettop(state) - 1;
        let coroutine = coroutine::create(core, state, 1);
        ffi::lua_insert(state, 1);
        if let Some(known) = record(coroutine) {
            known.spawned.set(true);
        }
        if !has_room(coroutine, count) {
            throw(state, "too many arguments to spawn");
        }
        ffi::lua_xmove(state, coroutine, count);
        let status = ffi::lua_resume_(coroutine, state, count);
        coroutine::settle(core, coroutine, status);
        ffi::lua_settop(state, 1);
    }
    1
}

/// `park() -> ...`: wait until another coroutine wakes this one.
unsafe extern "C-unwind" fn park(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        if core_of(state).scope.borrow().anchors.borrow().is_none() {
            throw(state, CANNOT_WAIT);
        }
        coroutine::check_can_wait(state);
        coroutine::suspend(state, Wait::Parked)
    }
}

/// `wake(thread, ...) -> boolean`: let a parked coroutine go on with these values; false if it is not parked.
unsafe extern "C-unwind" fn wake(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let coroutine = ffi::lua_tothread(state, 1);
        if coroutine.is_null() {
            ffi::luaL_typeerror(state, 1, c"thread".as_ptr());
        }
        let parked = record(coroutine).is_some_and(|known| known.wait.get() == Wait::Parked);
        if parked {
            let count = ffi::lua_gettop(state) - 1;
            if !has_room(coroutine, count) {
                throw(state, "too many arguments to wake");
            }
            ffi::lua_xmove(state, coroutine, count);
            coroutine::make_ready(core_of(state), coroutine, Go::Values(count));
        }
        ffi::lua_pushboolean(state, c_int::from(parked));
    }
    1
}

/// `array(t) -> t`: have an empty table reach the host as a list.
unsafe extern "C-unwind" fn array(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        if ffi::lua_gettop(state) == 0 {
            ffi::lua_createtable(state, 0, 0);
        }
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        if ffi::lua_getreadonly(state, 1) != 0 {
            throw(state, "attempt to modify a readonly table");
        }
        ffi::lua_settop(state, 1);
        core_of(state).mark_array(state);
    }
    1
}

/// Push a table with the primitives.
pub unsafe fn push_primitives(state: *mut lua_State) {
    // SAFETY: called protected.
    unsafe {
        ffi::lua_createtable(state, 0, 5);
        for (name, function) in [
            (c"request", request as ffi::lua_CFunction),
            (c"spawn", spawn),
            (c"park", park),
            (c"wake", wake),
            (c"array", array),
        ] {
            coroutine::set_function(state, name, function);
        }
        ffi::lua_setreadonly(state, -1, 1);
    }
}
