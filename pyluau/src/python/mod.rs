//! The one place that names Python.

mod convert;
mod errors;
mod handles;
mod lent;
mod limits;
mod state;
mod stepper;

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::error::Result;
use crate::vm::{Core, Vm};

/// How Luau strings reach Python.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// `str` where it is UTF-8, else `bytes`.
    Auto,
    /// Always `str`; a string that is not UTF-8 is an error.
    Text,
    /// `bytes` always.
    Bytes,
}

/// What every handle of a state shares.
pub struct Home {
    pub vm: Vm,
    pub strings: Strings,
    pub sandbox: bool,
    /// What no script may catch, such as `KeyboardInterrupt`, on its way through one.
    pub passing: Arc<Mutex<Option<PyErr>>>,
}

impl Home {
    /// Use the VM with the interpreter free for others.
    pub fn run<T: Send>(self: &Arc<Self>, py: Python<'_>, body: impl FnOnce(&Core) -> Result<T> + Send) -> PyResult<T> {
        let result = py.detach(|| self.vm.enter().and_then(|core| body(&core)));
        result.map_err(|error| errors::to_python(py, error, self))
    }

    /// Use the VM for a moment.
    pub fn quick<T>(self: &Arc<Self>, py: Python<'_>, body: impl FnOnce(&Core) -> Result<T>) -> PyResult<T> {
        let result = self.vm.enter().and_then(|core| body(&core));
        result.map_err(|error| errors::to_python(py, error, self))
    }
}

/// Restart the alarm thread in the child of a fork.
#[pyfunction]
fn after_fork() {
    crate::limits::after_fork();
}

/// Switch one of the VM's own flags, for the whole process; return whether the flag exists.
#[pyfunction]
fn set_flag(name: &str, on: bool) -> bool {
    crate::vm::set_flag(name, on)
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<limits::Limits>()?;
    module.add_class::<state::State>()?;
    module.add_class::<handles::Table>()?;
    module.add_class::<handles::Function>()?;
    module.add_class::<handles::Thread>()?;
    module.add_class::<handles::Buffer>()?;
    module.add_class::<handles::Userdata>()?;
    module.add_class::<lent::Lent>()?;
    module.add_class::<stepper::Stepper>()?;
    module.add_class::<stepper::Call>()?;
    module.add_class::<stepper::Waiting>()?;
    module.add_class::<stepper::Done>()?;
    module.add_function(wrap_pyfunction!(state::compile, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(set_flag, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("version", crate::vm::version())?;
    module.add("native_supported", crate::vm::native_supported())?;
    Ok(())
}
