//! The bookkeeping of a stepped script: which calls are open, which coroutines may go on.

use std::collections::{BTreeMap, VecDeque};

use crate::value::Value;

/// A numbered request to the host.
pub struct Call {
    pub id: u64,
    pub name: String,
    pub arguments: Vec<Value>,
}

/// What a step ended with.
pub enum Step {
    /// Every coroutine waits; these calls are new since the last step, and those are not needed any more.
    Waiting {
        calls: Vec<Call>,
        dropped: Vec<u64>,
    },
    Done(Vec<Value>),
}

/// How a waiting coroutine is to go on.
#[derive(Clone, Copy)]
pub enum Go {
    /// With so many values, which are on its stack.
    Values(i32),
    /// With the error on top of its stack.
    Error,
}

/// A coroutine that was woken and has not run yet.
pub struct Ready<C> {
    pub coroutine: C,
    pub go: Go,
}

/// The coroutines of one script; `C` names a coroutine.
pub struct Board<C> {
    last: u64,
    fresh: Vec<Call>,
    dropped: Vec<u64>,
    open: BTreeMap<u64, C>,
    pub ready: VecDeque<Ready<C>>,
}

impl<C: Copy> Board<C> {
    pub fn new() -> Board<C> {
        Board { last: 0, fresh: Vec::new(), dropped: Vec::new(), open: BTreeMap::new(), ready: VecDeque::new() }
    }

    /// Note a request; numbers count up from one in the order the script made them.
    pub fn ask(&mut self, coroutine: C, name: String, arguments: Vec<Value>) -> u64 {
        self.last += 1;
        self.fresh.push(Call { id: self.last, name, arguments });
        self.open.insert(self.last, coroutine);
        self.last
    }

    /// The coroutine that waits for this call, which is then open no more.
    pub fn settle(&mut self, id: u64) -> Option<C> {
        self.open.remove(&id)
    }

    /// The script lost interest in a call.
    pub fn drop_call(&mut self, id: u64) {
        if self.open.remove(&id).is_some() {
            let known = self.fresh.len();
            self.fresh.retain(|call| call.id != id);
            // The host never heard of a call that was made and dropped within one step.
            if self.fresh.len() == known {
                self.dropped.push(id);
            }
        }
    }

    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether this call was ever made.
    pub fn knows(&self, id: u64) -> bool {
        id >= 1 && id <= self.last
    }

    /// Calls and drops that the host has not received yet.
    pub fn report(&mut self) -> Step {
        Step::Waiting { calls: std::mem::take(&mut self.fresh), dropped: std::mem::take(&mut self.dropped) }
    }
}
