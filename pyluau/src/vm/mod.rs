//! The one place that names the VM. Whatever may raise a Luau error runs inside `Core::protect`.

mod compile;
mod coroutine;
mod cross;
mod handle;
mod library;
mod memory;
mod read;
mod sandbox;
mod scope;
mod script;
mod stop;
mod trace;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{CString, c_int};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mlua::ffi::{self, lua_State};

use crate::bytecode;
use crate::error::{Error, Raised, Result, Stop};
use crate::limits::{Alarm, Limits};
use crate::value::{Allowance, Callback, Crossing, Forgotten, Value};
pub use compile::{Optimization, compile, compile_expression, native_supported, set_flag, version};
pub use handle::ThreadStatus;
use memory::Memory;
pub use scope::{Scope, Surroundings};
pub use script::{Entry, Script};
use trace::traceback;

/// How a VM is set up.
pub struct Options {
    pub sandbox: bool,
    pub native: bool,
    pub limits: Limits,
    pub surroundings: Surroundings,
    pub print: Arc<dyn Callback>,
    /// Asked now and then whether the host wants the running script stopped.
    pub poll: Arc<dyn Fn() -> bool + Send + Sync>,
    pub key: Option<Vec<u8>>,
}

/// A VM that one OS thread uses at a time.
pub struct Vm {
    owner: AtomicU64,
    core: UnsafeCell<Option<Box<Core>>>,
    alarm: Arc<Alarm>,
}

// SAFETY: `enter` lets one thread at a time reach the core.
unsafe impl Send for Vm {}
// SAFETY: as above.
unsafe impl Sync for Vm {}

/// Everything that belongs to one VM; reached through `Vm::enter` only.
pub struct Core {
    main: *mut lua_State,
    /// The coroutine that runs now, for calls that come back from the host.
    current: Cell<*mut lua_State>,
    memory: Box<Memory>,
    alarm: Arc<Alarm>,
    forgotten: Forgotten,
    stop: RefCell<Option<Stop>>,
    running: Cell<bool>,
    scope: RefCell<Arc<Scope>>,
    base_scope: Arc<Scope>,
    traceback: RefCell<String>,
    /// The frames of the coroutine that a limit stopped.
    stopped_at: RefCell<String>,
    /// An error that ended a spawned coroutine, as a reference.
    uncaught: Cell<c_int>,
    options: Options,
    marks: Marks,
    natives: library::Natives,
}

/// References to objects that the VM uses often.
struct Marks {
    /// A coroutine that loads chunks and runs nothing.
    loader: *mut lua_State,
    array: c_int,
    environment: c_int,
    weak: c_int,
    primitives: c_int,
}

impl Marks {
    fn none() -> Marks {
        Marks { loader: std::ptr::null_mut(), array: 0, environment: 0, weak: 0, primitives: 0 }
    }
}

/// The right to use a core, until dropped.
pub struct Entered<'a> {
    vm: &'a Vm,
    core: &'a Core,
    outermost: bool,
}

impl Deref for Entered<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.outermost {
            self.vm.owner.store(0, Ordering::Release);
        }
    }
}

fn this_thread() -> u64 {
    thread_local! { static TOKEN: u8 = const { 0 } }
    TOKEN.with(|token| std::ptr::from_ref(token) as u64)
}

impl Vm {
    pub fn new(options: Options) -> Result<Vm> {
        let core = Core::new(options)?;
        let alarm = core.alarm.clone();
        Ok(Vm { owner: AtomicU64::new(0), core: UnsafeCell::new(Some(core)), alarm })
    }

    /// Use the VM; another thread that is using it makes this an error, the same thread does not.
    pub fn enter(&self) -> Result<Entered<'_>> {
        let me = this_thread();
        let outermost = match self.owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(owner) if owner == me => false,
            Err(_) => return Err(Error::Misuse("the state is in use by another thread".to_owned())),
        };
        // SAFETY: this thread is the owner.
        match unsafe { &*self.core.get() } {
            Some(core) => {
                let entered = Entered { vm: self, core, outermost };
                core.forget();
                Ok(entered)
            }
            None => {
                if outermost {
                    self.owner.store(0, Ordering::Release);
                }
                Err(Error::Closed)
            }
        }
    }

    /// Free the VM; twice is once.
    pub fn close(&self) -> Result<()> {
        let entered = match self.enter() {
            Ok(entered) => entered,
            Err(Error::Closed) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !entered.outermost {
            return Err(Error::Misuse("a state cannot be closed by a function it is calling".to_owned()));
        }
        // SAFETY: this thread is the owner, and no one else holds a borrow: this is the outermost use.
        let core = unsafe { (*self.core.get()).take() };
        drop(entered);
        drop(core);
        Ok(())
    }

    /// Stop the script that runs on another thread; return whether one was running.
    pub fn cancel(&self) -> bool {
        self.alarm.cancel()
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.enter(), Err(Error::Closed))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.alarm.detach();
        // SAFETY: no code runs in this VM any more.
        unsafe { ffi::lua_close(self.main) };
    }
}

/// The core a coroutine belongs to.
unsafe fn core_of<'a>(state: *mut lua_State) -> &'a Core {
    // SAFETY: every VM is given its core before anything runs in it.
    unsafe { &*(*ffi::lua_callbacks(state)).userdata.cast::<Core>() }
}

/// How many values a function may have on its stack in Luau's own build; the one of mlua allows a million.
const STACK_LIMIT: c_int = 8_000;

/// Make room for so many more values of a script, if it may have them.
unsafe fn has_room(state: *mut lua_State, count: c_int) -> bool {
    // SAFETY: called by a function that the VM called.
    unsafe { ffi::lua_gettop(state).saturating_add(count) <= STACK_LIMIT && ffi::lua_checkstack(state, count) != 0 }
}

/// Raise a string as a Luau error, with the position of the caller.
unsafe fn throw(state: *mut lua_State, message: &str) -> ! {
    // SAFETY: called by functions that the VM called, so errors are caught.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_pushlstring_(state, message.as_ptr().cast(), message.len());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

impl Core {
    fn new(options: Options) -> Result<Box<Core>> {
        sandbox::repair();
        let memory = Memory::new(options.limits.memory);
        let base_scope = Arc::new(Scope::new(options.limits.clone(), &options.surroundings));
        // SAFETY: the memory is boxed, so its address stays; it is freed after the VM.
        let main = unsafe { ffi::lua_newstate(memory::allocate, std::ptr::from_ref(&*memory).cast_mut().cast()) };
        if main.is_null() {
            return Err(Error::Stopped { stop: Stop::Memory { limit: memory.limit.get() }, traceback: String::new() });
        }
        let mut core = Box::new(Core {
            main,
            current: Cell::new(main),
            memory,
            alarm: Alarm::new(),
            forgotten: Arc::new(Mutex::new(Vec::new())),
            stop: RefCell::new(None),
            running: Cell::new(false),
            scope: RefCell::new(base_scope.clone()),
            base_scope,
            traceback: RefCell::new(String::new()),
            stopped_at: RefCell::new(String::new()),
            uncaught: Cell::new(ffi::LUA_NOREF),
            options,
            marks: Marks::none(),
            natives: library::Natives::default(),
        });
        // SAFETY: the core is boxed, so its address stays as long as the VM lives.
        unsafe {
            let callbacks = ffi::lua_callbacks(main);
            (*callbacks).userdata = std::ptr::from_ref(&*core).cast_mut().cast();
            (*callbacks).userthread = Some(coroutine::on_thread);
            core.attach();
        }
        let mut marks = Marks::none();
        let mut natives = library::Natives::default();
        core.protect(|state| {
            // SAFETY: protected.
            unsafe { sandbox::set_up(&core, state, &mut marks, &mut natives) };
            Ok(())
        })?;
        core.marks = marks;
        core.natives = natives;
        Ok(core)
    }

    fn scope(&self) -> Arc<Scope> {
        self.scope.borrow().clone()
    }

    fn allowance(&self) -> Allowance {
        Allowance {
            depth: self.options.limits.depth,
            bytes: self.options.limits.memory.unwrap_or(1 << 30).saturating_mul(4),
        }
    }

    /// Release references that the host has dropped.
    fn forget(&self) {
        let Ok(mut forgotten) = self.forgotten.lock() else { return };
        for id in forgotten.drain(..) {
            // SAFETY: dropping a reference raises nothing.
            unsafe { ffi::lua_unref(self.main, id) };
        }
    }

    /// Run something that may raise a Luau error.
    fn protect<T>(&self, body: impl FnOnce(*mut lua_State) -> Result<T>) -> Result<T> {
        let state = self.current.get();
        self.attempt(state, body).unwrap_or_else(|status| Err(self.caught(state, status)))
    }

    /// Run something that may raise a Luau error, which is then on top of the stack.
    fn attempt<T>(
        &self,
        state: *mut lua_State,
        body: impl FnOnce(*mut lua_State) -> Result<T>,
    ) -> std::result::Result<Result<T>, c_int> {
        struct Pack<F, T> {
            body: Option<F>,
            result: Option<Result<T>>,
        }
        unsafe extern "C-unwind" fn unpack<F: FnOnce(*mut lua_State) -> Result<T>, T>(state: *mut lua_State) -> c_int {
            // SAFETY: `lua_cpcall` hands over the pack that is on the stack of `protect`.
            unsafe {
                let pack = &mut *ffi::lua_tolightuserdata(state, 1).cast::<Pack<F, T>>();
                ffi::lua_settop(state, 0);
                if let Some(body) = pack.body.take() {
                    pack.result = Some(body(state));
                }
            }
            0
        }
        fn trampoline<F: FnOnce(*mut lua_State) -> Result<T>, T>(_: &Pack<F, T>) -> ffi::lua_CFunction {
            unpack::<F, T>
        }
        let mut pack = Pack { body: Some(body), result: None };
        let function = trampoline(&pack);
        // SAFETY: the pack outlives the call.
        let status = unsafe { ffi::lua_cpcall(state, function, (&raw mut pack).cast()) };
        if status != ffi::LUA_OK {
            return Err(status);
        }
        Ok(pack.result.unwrap_or_else(|| Err(Error::Misuse("the call did not run".to_owned()))))
    }

    /// Make an error of the error object on top of the stack, and pop it.
    fn caught(&self, state: *mut lua_State, status: c_int) -> Error {
        if status == ffi::LUA_ERRMEM || self.memory.refused.get() {
            self.stop(self.out_of_memory());
        }
        let traceback = self.traceback.take();
        if let Some(stop) = self.stop.borrow().clone() {
            // SAFETY: the error object is there.
            unsafe { ffi::lua_settop(state, -2) };
            let mut stopped_at = self.stopped_at.borrow_mut();
            if stopped_at.is_empty() {
                *stopped_at = traceback;
            }
            return Error::Stopped { stop, traceback: stopped_at.clone() };
        }
        // SAFETY: the error object is on top; reading a string raises nothing, reading anything else is protected.
        unsafe {
            let text = cross::bytes(state, -1).map(<[u8]>::to_vec);
            let (message, value) = match text {
                Some(text) => (String::from_utf8_lossy(&text).into_owned(), Value::Text(text)),
                None => self.read_error(state),
            };
            ffi::lua_settop(state, -2);
            Error::Runtime(Box::new(Raised { message, traceback, value }))
        }
    }

    /// Read an error object that is no string; one that cannot be read is nil.
    unsafe fn read_error(&self, state: *mut lua_State) -> (String, Value) {
        // SAFETY: the error object is on top of the stack.
        unsafe {
            let object = ffi::lua_ref(state, -1);
            let read = self.attempt(state, |inner| {
                ffi::lua_rawgeti_(inner, ffi::LUA_REGISTRYINDEX, object);
                let said = self.say(inner, -1);
                let value = self.read(inner, -1, Crossing::Deep).unwrap_or(Value::Nil);
                Ok((said.unwrap_or_else(|| value.describe()), value))
            });
            ffi::lua_unref(state, object);
            match read {
                Ok(Ok(read)) => read,
                Ok(Err(_)) => ("(error object cannot be read)".to_owned(), Value::Nil),
                Err(_) => {
                    ffi::lua_settop(state, -2);
                    ("(error object cannot be read)".to_owned(), Value::Nil)
                }
            }
        }
    }

    /// The text of an error object that has `__tostring`.
    unsafe fn say(&self, state: *mut lua_State, index: c_int) -> Option<String> {
        // SAFETY: called protected.
        unsafe {
            let index = ffi::lua_absindex(state, index);
            if ffi::lua_type(state, index) != ffi::LUA_TTABLE
                || ffi::luaL_getmetafield_(state, index, c"__tostring".as_ptr()) == 0
            {
                return None;
            }
            ffi::lua_pushvalue(state, index);
            let said = (ffi::lua_pcall(state, 1, 1, 0) == ffi::LUA_OK).then(|| cross::bytes(state, -1)).flatten();
            let said = said.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            ffi::lua_settop(state, -2);
            said
        }
    }

    /// Run a script's code within the limits of a scope.
    fn run<T>(&self, scope: &Arc<Scope>, body: impl FnOnce(*mut lua_State) -> Result<T>) -> Result<T> {
        if self.running.get() {
            return self.protect(body);
        }
        let before = self.scope.replace(scope.clone());
        self.running.set(true);
        self.begin(scope);
        let result = self.protect(body);
        scope.pause();
        self.alarm.end();
        self.listen(false);
        self.running.set(false);
        let (mut stop, traceback) = (self.stop.take(), self.stopped_at.take());
        if self.memory.refused.replace(false) {
            // Whatever the script made of it.
            stop = Some(self.out_of_memory());
        }
        *self.scope.borrow_mut() = before;
        let result = match (stop, result) {
            (Some(Stop::Uncaught), _) => Err(self.uncaught_error()),
            (Some(stop), _) => Err(Error::Stopped { stop, traceback }),
            (None, result) => result,
        };
        if matches!(result, Err(Error::Stopped { .. })) {
            // SAFETY: dropping a reference raises nothing.
            unsafe { ffi::lua_unref(self.main, self.uncaught.replace(ffi::LUA_NOREF)) };
            // What the script left behind must not burden the next one.
            self.tidy();
        }
        result
    }

    fn uncaught_error(&self) -> Error {
        let reference = self.uncaught.replace(ffi::LUA_NOREF);
        let state = self.current.get();
        // SAFETY: the reference was made when the coroutine failed.
        unsafe {
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, reference);
            ffi::lua_unref(state, reference);
            self.caught(state, ffi::LUA_ERRRUN)
        }
    }

    /// Push a chunk, loaded into the environment at `environment`.
    unsafe fn load(&self, state: *mut lua_State, code: &[u8], chunk: &str, environment: c_int) -> Result<()> {
        let name = CString::new(chunk.replace('\0', " ")).unwrap_or_default();
        let loader = self.marks.loader;
        // SAFETY: called protected; the bytecode was made by our compiler.
        unsafe {
            // A chunk finds its imports in the globals of the coroutine that loads it.
            ffi::lua_settop(loader, 0);
            ffi::lua_xpush(state, loader, environment);
            ffi::lua_replace(loader, ffi::LUA_GLOBALSINDEX);
            let failed = ffi::luau_load(loader, name.as_ptr(), code.as_ptr().cast(), code.len(), 0) != 0;
            ffi::lua_xmove(loader, state, 1);
            ffi::lua_xpush(state, loader, ffi::LUA_GLOBALSINDEX);
            ffi::lua_replace(loader, ffi::LUA_GLOBALSINDEX);
            if failed {
                if self.memory.refused.get() {
                    return Err(Error::Stopped { stop: self.out_of_memory(), traceback: String::new() });
                }
                let message = cross::bytes(state, -1).unwrap_or_default();
                return Err(Error::Syntax(String::from_utf8_lossy(message).into_owned()));
            }
            if self.options.native && native_supported() {
                ffi::luau_codegen_compile(state, -1);
            }
        }
        Ok(())
    }

    /// Open sealed bytecode.
    fn unseal<'a>(&self, sealed: &'a [u8]) -> Result<&'a [u8]> {
        bytecode::open(self.options.key.as_deref(), &version(), sealed)
    }

    /// Call the function below its arguments, and leave the results; errors have a traceback.
    unsafe fn call(&self, state: *mut lua_State, arguments: c_int, results: c_int) -> Result<()> {
        // SAFETY: called protected.
        unsafe {
            let function = ffi::lua_gettop(state) - arguments;
            ffi::lua_pushcclosurek(state, on_error, std::ptr::null(), 0, None);
            ffi::lua_insert(state, function);
            let status = ffi::lua_pcall(state, arguments, results, function);
            if status != ffi::LUA_OK {
                return Err(self.caught(state, status));
            }
            ffi::lua_remove(state, function);
        }
        Ok(())
    }
}

/// Record the origin of an error while the stack still exists.
unsafe extern "C-unwind" fn on_error(state: *mut lua_State) -> c_int {
    // SAFETY: called by the VM.
    unsafe {
        let core = core_of(state);
        if core.stop.borrow().is_none() {
            core.traceback.replace(traceback(state, 1));
        }
    }
    1
}
