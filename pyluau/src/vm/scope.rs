//! What belongs to one script rather than to its VM: limits, clock, random numbers, names of objects, open calls.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mlua::ffi::lua_State;

use crate::error::Stop;
use crate::limits::{Limits, Used, cpu_now};
use crate::step::Board;
use crate::value::{Callback, Reference};

/// What a script takes for the outside world.
#[derive(Clone, Default)]
pub struct Surroundings {
    pub clock: Option<Arc<dyn Callback>>,
    pub seed: Option<u64>,
}

pub struct Scope {
    pub limits: Limits,
    pub surroundings: Surroundings,
    pub coroutines: Arc<AtomicUsize>,
    pub board: RefCell<Board<*mut lua_State>>,
    /// The coroutine that runs the main function, if the script is stepped.
    pub main: Cell<*mut lua_State>,
    /// A table that keeps the waiting coroutines of a stepped script alive.
    pub anchors: RefCell<Option<Reference>>,
    /// A weak table from objects to the numbers `tostring` shows.
    pub names: RefCell<Option<Reference>>,
    pub named: Cell<u64>,
    random: Cell<u64>,
    used: Cell<Used>,
    since: Cell<Option<(Instant, f64)>>,
}

// SAFETY: a scope is used by the thread that entered its VM; what it drops may be dropped anywhere.
unsafe impl Send for Scope {}
// SAFETY: as above.
unsafe impl Sync for Scope {}

impl Scope {
    pub fn new(limits: Limits, surroundings: &Surroundings) -> Scope {
        let seed = surroundings.seed.unwrap_or_else(|| {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            time.as_nanos() as u64 ^ (&raw const limits as u64).rotate_left(32)
        });
        Scope {
            limits,
            surroundings: surroundings.clone(),
            coroutines: Arc::default(),
            board: RefCell::new(Board::new()),
            main: Cell::new(std::ptr::null_mut()),
            anchors: RefCell::new(None),
            names: RefCell::new(None),
            named: Cell::new(0),
            random: Cell::new(seed),
            used: Cell::new(Used::default()),
            since: Cell::new(None),
        }
    }

    /// Start the clocks.
    pub fn resume(&self) {
        let cpu = if self.limits.cpu_seconds.is_some() { cpu_now() } else { 0.0 };
        self.since.set(Some((Instant::now(), cpu)));
        if self.main.get().is_null() {
            // Scripts that are not stepped each have the whole budget.
            self.used.set(Used::default());
        }
    }

    /// Stop the clocks: time between steps does not count.
    pub fn pause(&self) {
        self.used.set(self.used());
        self.since.set(None);
    }

    pub fn used(&self) -> Used {
        let mut used = self.used.get();
        if let Some((wall, cpu)) = self.since.get() {
            used.seconds += wall.elapsed().as_secs_f64();
            if self.limits.cpu_seconds.is_some() {
                used.cpu_seconds += cpu_now() - cpu;
            }
        }
        used
    }

    /// Count one safe point: `None` if they are not counted, else whether the script may continue.
    pub fn count(&self) -> Option<bool> {
        let limit = self.limits.instructions?;
        let mut used = self.used.get();
        used.instructions += 1;
        self.used.set(used);
        Some(used.instructions <= limit)
    }

    /// The limit that is passed, if one is.
    pub fn exceeded(&self) -> Option<Stop> {
        let used = self.used();
        match (self.limits.seconds, self.limits.cpu_seconds) {
            (Some(limit), _) if used.seconds >= limit => Some(Stop::Seconds { limit }),
            (_, Some(limit)) if used.cpu_seconds >= limit => Some(Stop::CpuSeconds { limit }),
            _ => None,
        }
    }

    /// How long until a limit can have been passed; processor time is never faster than the wall clock.
    pub fn time_left(&self) -> Option<Duration> {
        let used = self.used();
        let wall = self.limits.seconds.map(|limit| limit - used.seconds);
        let cpu = self.limits.cpu_seconds.map(|limit| limit - used.cpu_seconds);
        let left = match (wall, cpu) {
            (Some(wall), Some(cpu)) => wall.min(cpu),
            (Some(left), None) | (None, Some(left)) => left,
            (None, None) => return None,
        };
        Duration::try_from_secs_f64(left.max(0.0)).ok()
    }

    pub fn reseed(&self, seed: u64) {
        self.random.set(seed);
    }

    /// The next 64 random bits (splitmix64).
    pub fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
