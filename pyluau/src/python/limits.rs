//! `Limits`, as Python sees them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What a script may use; ``None`` is no limit.
#[pyclass(frozen, get_all, eq, module = "pyluau")]
#[derive(Clone, PartialEq)]
pub struct Limits {
    memory: Option<usize>,
    seconds: Option<f64>,
    cpu_seconds: Option<f64>,
    instructions: Option<u64>,
    coroutines: Option<usize>,
    depth: usize,
}

impl Limits {
    pub fn inner(&self) -> crate::limits::Limits {
        crate::limits::Limits {
            memory: self.memory,
            seconds: self.seconds,
            cpu_seconds: self.cpu_seconds,
            instructions: self.instructions,
            coroutines: self.coroutines,
            depth: self.depth,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory: Some(MEMORY),
            seconds: None,
            cpu_seconds: None,
            instructions: None,
            coroutines: Some(COROUTINES),
            depth: DEPTH,
        }
    }
}

const MEMORY: usize = 64 << 20;
const COROUTINES: usize = 10_000;
const DEPTH: usize = 100;

fn said<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| value.to_string())
}

#[pymethods]
impl Limits {
    #[new]
    #[pyo3(signature = (*, memory=Some(MEMORY), seconds=None, cpu_seconds=None, instructions=None, coroutines=Some(COROUTINES), depth=DEPTH))]
    fn new(
        memory: Option<usize>,
        seconds: Option<f64>,
        cpu_seconds: Option<f64>,
        instructions: Option<u64>,
        coroutines: Option<usize>,
        depth: usize,
    ) -> PyResult<Limits> {
        for time in [seconds, cpu_seconds].into_iter().flatten() {
            if !(time.is_finite() && time > 0.0) {
                return Err(PyValueError::new_err(format!("a time limit is a positive number of seconds, not {time}")));
            }
        }
        if depth == 0 || depth > 500 {
            return Err(PyValueError::new_err(format!("depth is between 1 and 500, not {depth}")));
        }
        Ok(Limits { memory, seconds, cpu_seconds, instructions, coroutines, depth })
    }

    fn __repr__(&self) -> String {
        format!(
            "Limits(memory={}, seconds={}, cpu_seconds={}, instructions={}, coroutines={}, depth={})",
            said(self.memory),
            said(self.seconds),
            said(self.cpu_seconds),
            said(self.instructions),
            said(self.coroutines),
            self.depth
        )
    }
}
