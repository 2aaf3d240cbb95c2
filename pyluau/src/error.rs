//! What can go wrong, one variant for each thing a caller can act on.

use crate::value::Value;

/// Why a running script was stopped; no script can catch it.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    Memory {
        limit: usize,
    },
    Seconds {
        limit: f64,
    },
    CpuSeconds {
        limit: f64,
    },
    Instructions {
        limit: u64,
    },
    Coroutines {
        limit: usize,
    },
    Cancelled,
    /// A spawned coroutine failed with an uncaught error, which the VM stores.
    Uncaught,
}

impl Stop {
    /// What the person reads.
    pub fn message(&self) -> String {
        match self {
            Stop::Memory { limit } => format!("out of memory: more than {limit} bytes"),
            Stop::Seconds { limit } => format!("out of time: more than {limit} seconds"),
            Stop::CpuSeconds { limit } => format!("out of time: more than {limit} seconds of processor time"),
            Stop::Instructions { limit } => format!("out of instructions: more than {limit}"),
            Stop::Coroutines { limit } => format!("too many coroutines: more than {limit} at once"),
            Stop::Cancelled => "cancelled".to_owned(),
            Stop::Uncaught => "a spawned coroutine failed".to_owned(),
        }
    }
}

/// An error a script raised, or would have.
pub struct Raised {
    pub message: String,
    pub traceback: String,
    pub value: Value,
}

pub enum Error {
    /// The source does not parse.
    Syntax(String),
    /// The script raised an error.
    Runtime(Box<Raised>),
    /// A limit was passed; the frames are those of the coroutine it stopped, if any ran.
    Stopped { stop: Stop, traceback: String },
    /// Every coroutine of a script is parked and no call is open.
    Deadlock,
    /// A value that has no counterpart on the other side.
    Conversion(String),
    /// Bytecode that was not made by this process or key.
    Bytecode(String),
    /// The state was closed.
    Closed,
    /// Used at a time, or from a thread, that is not allowed.
    Misuse(String),
}

pub type Result<T> = std::result::Result<T, Error>;
