//! Errors, as Python sees them: the classes are written in Python, in `pyluau.errors`.

use std::any::Any;
use std::sync::Arc;

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{Home, convert};
use crate::error::{Error, Raised, Stop};
use crate::value::{Object, Value};

/// A Python exception while a script holds it.
pub struct Exception {
    pub error: PyErr,
    shown: Shown,
}

/// How much of an exception a script sees.
enum Shown {
    /// Only that something of this name failed.
    Name(String),
    /// Its class and text.
    Message,
    /// Its traceback too.
    Traceback,
}

impl Object for Exception {
    fn message(&self) -> String {
        if let Shown::Name(name) = &self.shown {
            return format!("{name} failed");
        }
        Python::attach(|py| {
            let value = self.error.value(py);
            let name = value.get_type().name().map_or_else(|_| "Exception".to_owned(), |name| name.to_string());
            match value.str().map(|text| text.to_string()) {
                Ok(text) if !text.is_empty() => format!("{name}: {text}"),
                _ => name,
            }
        })
    }

    fn get(&self, name: &[u8]) -> std::result::Result<Value, Value> {
        Ok(match (name, &self.shown) {
            (b"message", _) => Value::text(&self.message()),
            (b"traceback", Shown::Traceback) => Value::text(&self.traceback()),
            _ => Value::Nil,
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Exception {
    fn traceback(&self) -> String {
        Python::attach(|py| {
            let format = || -> PyResult<String> {
                let details = (self.error.get_type(py), self.error.value(py), self.error.traceback(py));
                let lines = py.import("traceback")?.call_method1("format_exception", details)?;
                pyo3::types::PyString::new(py, "").call_method1("join", (lines,))?.extract()
            };
            format().unwrap_or_default()
        })
    }
}

/// Let an exception pass through scripts: as an error they can catch, or past them.
pub fn to_luau(py: Python<'_>, error: PyErr, home: &Arc<Home>) -> Value {
    // A traceback names files and lines of the host, which are not a sandboxed script's business.
    pass(py, error, if home.sandbox { Shown::Message } else { Shown::Traceback }, home)
}

/// As `to_luau`, for code that was not written for scripts: they see only the name of what failed.
pub fn to_luau_hidden(py: Python<'_>, error: PyErr, name: &str, home: &Arc<Home>) -> Value {
    pass(py, error, Shown::Name(name.to_owned()), home)
}

fn pass(py: Python<'_>, error: PyErr, shown: Shown, home: &Arc<Home>) -> Value {
    if !error.is_instance_of::<PyException>(py) {
        if let Ok(mut passing) = home.passing.lock() {
            *passing = Some(error.clone_ref(py));
        }
        if let Ok(core) = home.vm.enter() {
            core.cancel_now();
        }
    }
    if let Ok(value) = error.value(py).getattr(pyo3::intern!(py, "_luau_value"))
        && let Ok(held) = value.cast::<convert::Held>()
    {
        // An error raised by a script is passed on unchanged.
        return held.get().0.clone();
    }
    if let Some(value) = plain(py, &error, home) {
        return value;
    }
    Value::Object(Arc::new(Exception { error, shown }))
}

/// What a `LuauError` that Python raised is in Luau: its value, or its message.
fn plain(py: Python<'_>, error: &PyErr, home: &Arc<Home>) -> Option<Value> {
    let object = error.value(py);
    if !object.is_instance(&class(py, "LuauError").ok()?).ok()? {
        return None;
    }
    let value = object.getattr("value").ok()?;
    let value = if value.is_none() { object.getattr("message").ok()? } else { value };
    convert::to_value(&value, home).ok()
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("pyluau.errors")?.getattr(name)
}

fn build(py: Python<'_>, name: &str, message: &str) -> PyErr {
    match class(py, name).and_then(|class| class.call1((message,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// `chunk:line` at the start of a message.
fn place(message: &str) -> (Option<&str>, Option<u32>) {
    for (at, _) in message.match_indices(':') {
        let rest = &message[at + 1..];
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        if digits > 0 && rest[digits..].starts_with(':') {
            return (Some(&message[..at]), rest[..digits].parse().ok());
        }
    }
    (None, None)
}

fn raised(py: Python<'_>, name: &str, raised: &Raised, home: &Arc<Home>) -> PyResult<PyErr> {
    let (chunk, line) = place(&raised.message);
    let details = PyDict::new(py);
    details.set_item("chunk", chunk)?;
    details.set_item("line", line)?;
    details.set_item("traceback", &raised.traceback)?;
    details.set_item("value", convert::to_python(py, &raised.value, home).unwrap_or_else(|_| py.None()))?;
    let error = class(py, name)?.call((raised.message.as_str(),), Some(&details))?;
    if !matches!(raised.value, Value::Text(_)) {
        error.setattr("_luau_value", Py::new(py, convert::Held(raised.value.clone()))?)?;
    }
    Ok(PyErr::from_value(error))
}

fn runtime(py: Python<'_>, error: &Raised, home: &Arc<Home>) -> PyErr {
    if let Value::Object(object) = &error.value
        && let Some(exception) = object.as_any().downcast_ref::<Exception>()
    {
        let original = exception.error.clone_ref(py);
        if !error.traceback.is_empty() {
            let _ = original.value(py).call_method1("add_note", (format!("in Luau:\n{}", error.traceback),));
        }
        return original;
    }
    let overflow = error.message.contains("stack overflow") && matches!(error.value, Value::Text(_));
    let name = if overflow { "StackOverflow" } else { "LuauError" };
    raised(py, name, error, home).unwrap_or_else(|error| error)
}

/// The innermost `chunk:line` of a traceback; a function of the host or of a library has no line.
fn innermost(traceback: &str) -> Option<(&str, u32)> {
    traceback.lines().find_map(|frame| {
        let position = frame.rsplit_once(" function ").map_or(frame, |(position, _)| position);
        let (chunk, line) = position.rsplit_once(':')?;
        Some((chunk, line.parse().ok()?))
    })
}

/// A limit that stopped a script, with the place where it did.
fn stopped(py: Python<'_>, stop: &Stop, traceback: &str) -> PyErr {
    let name = match stop {
        Stop::Memory { .. } => "OutOfMemory",
        Stop::Seconds { .. } | Stop::CpuSeconds { .. } => "OutOfTime",
        Stop::Instructions { .. } => "OutOfInstructions",
        Stop::Coroutines { .. } => "TooManyCoroutines",
        Stop::Cancelled => "Cancelled",
        Stop::Uncaught => "LuauError",
    };
    let build = || -> PyResult<PyErr> {
        let details = PyDict::new(py);
        details.set_item("traceback", traceback)?;
        let mut message = stop.message();
        if let Some((chunk, line)) = innermost(traceback) {
            message = format!("{chunk}:{line}: {message}");
            details.set_item("chunk", chunk)?;
            details.set_item("line", line)?;
        }
        Ok(PyErr::from_value(class(py, name)?.call((message,), Some(&details))?))
    };
    build().unwrap_or_else(|error| error)
}

/// The exception a caller gets.
pub fn to_python(py: Python<'_>, error: Error, home: &Arc<Home>) -> PyErr {
    if let Ok(mut passing) = home.passing.lock()
        && let Some(passing) = passing.take()
    {
        return passing;
    }
    match error {
        Error::Runtime(error) => runtime(py, &error, home),
        Error::Syntax(message) => syntax(py, &message),
        Error::Stopped { stop, traceback } => stopped(py, &stop, &traceback),
        Error::Deadlock => build(py, "Deadlock", "every coroutine is parked and no call is open"),
        Error::Conversion(message) => build(py, "ConversionError", &message),
        Error::Bytecode(message) => build(py, "BytecodeError", &message),
        Error::Closed => build(py, "ClosedError", "the state is closed"),
        Error::Misuse(message) => PyRuntimeError::new_err(message),
    }
}

/// A syntax error, which needs no state.
pub fn syntax(py: Python<'_>, message: &str) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let (chunk, line) = place(message);
        let details = PyDict::new(py);
        details.set_item("chunk", chunk)?;
        details.set_item("line", line)?;
        Ok(PyErr::from_value(class(py, "LuauSyntaxError")?.call((message,), Some(&details))?))
    };
    build().unwrap_or_else(|error| error)
}

/// A value that cannot cross.
pub fn conversion(py: Python<'_>, message: &str) -> PyErr {
    build(py, "ConversionError", message)
}
