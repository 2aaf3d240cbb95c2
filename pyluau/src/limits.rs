//! Limits, and the thread that interrupts running scripts when their time is up.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// What a script may use; `None` is no limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub memory: Option<usize>,
    pub seconds: Option<f64>,
    pub cpu_seconds: Option<f64>,
    pub instructions: Option<u64>,
    pub coroutines: Option<usize>,
    /// How deep tables may be nested when they cross.
    pub depth: usize,
}

/// What a script has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub instructions: u64,
}

/// Processor time of this thread.
pub fn cpu_now() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Where the VM looks at its safe points: a function pointer, null while there is nothing to do.
struct Slot {
    pointer: *const AtomicPtr<c_void>,
    handler: *mut c_void,
}

// SAFETY: the slot is written atomically, and emptied before the VM it belongs to is freed.
unsafe impl Send for Slot {}

/// One VM's alarm clock.
pub struct Alarm {
    due: AtomicU64,
    rung: AtomicBool,
    cancelled: AtomicBool,
    running: AtomicBool,
    generation: AtomicU32,
    slot: Mutex<Option<Slot>>,
}

impl Alarm {
    pub fn new() -> Arc<Alarm> {
        Arc::new(Alarm {
            due: AtomicU64::new(NEVER),
            rung: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            running: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            slot: Mutex::new(None),
        })
    }

    /// Ring by writing `handler` to `pointer`, until `detach`.
    ///
    /// # Safety
    /// `pointer` stays valid until `detach`.
    pub unsafe fn attach(&self, pointer: *const AtomicPtr<c_void>, handler: *mut c_void) {
        if let Ok(mut slot) = self.slot.lock() {
            *slot = Some(Slot { pointer, handler });
        }
    }

    pub fn detach(&self) {
        if let Ok(mut slot) = self.slot.lock() {
            *slot = None;
        }
    }

    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        if let Ok(slot) = self.slot.lock()
            && let Some(slot) = slot.as_ref()
        {
            // SAFETY: a slot that is present points into a living VM.
            unsafe { (*slot.pointer).store(slot.handler, Ordering::Release) };
        }
    }

    /// Ring after `after` of wall time.
    pub fn arm(self: &Arc<Self>, after: Duration) {
        let ticker = ticker();
        let generation = GENERATION.load(Ordering::Acquire) + 1;
        if self.generation.swap(generation, Ordering::AcqRel) != generation {
            ticker.watch(self);
        }
        let due = now().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(NEVER));
        self.due.store(due, Ordering::Release);
        ticker.wake();
    }

    pub fn disarm(&self) {
        self.due.store(NEVER, Ordering::Release);
    }

    /// A script starts: discard signals for the previous one.
    pub fn begin(&self) {
        self.cancelled.store(false, Ordering::Release);
        self.rung.store(false, Ordering::Release);
        self.running.store(true, Ordering::Release);
    }

    pub fn end(&self) {
        self.running.store(false, Ordering::Release);
        self.disarm();
    }

    /// Stop the running script; return whether one was running.
    pub fn cancel(&self) -> bool {
        if !self.running.load(Ordering::Acquire) {
            return false;
        }
        self.cancelled.store(true, Ordering::Release);
        self.ring();
        true
    }

    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Whether the alarm rang and was not handled yet.
    pub fn is_ringing(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// Whether it rang since this was last asked.
    pub fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }
}

const NEVER: u64 = u64::MAX;
const TICK: Duration = Duration::from_millis(5);
const IDLE_TICKS: u32 = 100;

/// Counts the forks of this process: a child has none of its parent's threads.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static TICKER: AtomicPtr<Ticker> = AtomicPtr::new(std::ptr::null_mut());

struct Ticker {
    alarms: Mutex<Vec<Weak<Alarm>>>,
    parked: AtomicBool,
    thread: OnceLock<thread::Thread>,
}

fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(NEVER)
}

fn ticker() -> &'static Ticker {
    let existing = TICKER.load(Ordering::Acquire);
    if !existing.is_null() {
        // SAFETY: a ticker that was published is never freed.
        return unsafe { &*existing };
    }
    let fresh = Box::into_raw(Box::new(Ticker {
        alarms: Mutex::new(Vec::new()),
        parked: AtomicBool::new(false),
        thread: OnceLock::new(),
    }));
    match TICKER.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: published, so never freed.
            let ticker: &'static Ticker = unsafe { &*fresh };
            let spawned = thread::Builder::new().name("pyluau-ticker".to_owned()).spawn(move || ticker.run());
            if let Ok(handle) = spawned {
                let _ = ticker.thread.set(handle.thread().clone());
            }
            ticker
        }
        Err(other) => {
            // SAFETY: ours was not published; the other one was.
            unsafe {
                drop(Box::from_raw(fresh));
                &*other
            }
        }
    }
}

/// Call in the child of a fork: its threads are gone, so the ticker must start again.
pub fn after_fork() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    TICKER.store(std::ptr::null_mut(), Ordering::Release);
}

impl Ticker {
    fn watch(&self, alarm: &Arc<Alarm>) {
        if let Ok(mut alarms) = self.alarms.lock() {
            alarms.retain(|known| known.strong_count() > 0);
            alarms.push(Arc::downgrade(alarm));
        }
    }

    fn wake(&self) {
        if self.parked.load(Ordering::Acquire)
            && self.parked.swap(false, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Ring all due alarms; return whether any are left.
    fn tick(&self) -> bool {
        let Ok(alarms) = self.alarms.lock() else { return false };
        let (time, mut armed) = (now(), false);
        for alarm in alarms.iter().filter_map(Weak::upgrade) {
            let due = alarm.due.load(Ordering::Acquire);
            if due <= time {
                alarm.disarm();
                alarm.ring();
            } else if due != NEVER {
                armed = true;
            }
        }
        armed
    }

    fn run(&self) {
        let mut idle = 0;
        loop {
            idle = if self.tick() { 0 } else { idle + 1 };
            if idle < IDLE_TICKS {
                thread::sleep(TICK);
                continue;
            }
            self.parked.store(true, Ordering::Release);
            // An alarm may have been set between the look and the flag.
            if !self.tick() {
                while self.parked.load(Ordering::Acquire) {
                    thread::park();
                }
            }
            self.parked.store(false, Ordering::Release);
            idle = 0;
        }
    }
}
