//! The stepper, as Python sees it.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::convert::{results, to_python, to_value};
use super::{Home, errors};
use crate::error::{Error, Result};
use crate::json;
use crate::step::Step;
use crate::value::Value;
use crate::vm::{Core, Script};

/// A request of a script to its host.
#[pyclass(frozen, get_all, module = "pyluau")]
pub struct Call {
    id: u64,
    name: String,
    args: Py<PyList>,
}

#[pymethods]
impl Call {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("id", "name", "args")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Call(id={}, name={:?}, args={})", self.id, self.name, self.args.bind(py).repr()?))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast::<Call>() {
            Ok(other) => {
                let other = other.get();
                Ok(self.id == other.id && self.name == other.name && self.args.bind(py).eq(other.args.bind(py))?)
            }
            Err(_) => Ok(false),
        }
    }
}

/// Every coroutine of the script waits; ``calls`` are new, ``dropped`` are ids whose answers are not needed any more.
#[pyclass(frozen, get_all, module = "pyluau")]
pub struct Waiting {
    calls: Py<PyList>,
    dropped: Vec<u64>,
}

#[pymethods]
impl Waiting {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("calls", "dropped")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Waiting(calls={}, dropped={:?})", self.calls.bind(py).repr()?, self.dropped))
    }
}

/// The main function returned.
#[pyclass(frozen, get_all, module = "pyluau")]
pub struct Done {
    /// Nothing, the one result, or the list of several.
    value: Py<PyAny>,
    /// The results, however many.
    values: Py<PyList>,
}

#[pymethods]
impl Done {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("value",)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Done(value={})", self.value.bind(py).repr()?))
    }
}

/// A script that runs until it needs its host.
#[pyclass(frozen, module = "pyluau")]
pub struct Stepper {
    script: Script,
    home: Arc<Home>,
}

impl Stepper {
    pub fn new(script: Script, home: Arc<Home>) -> Stepper {
        Stepper { script, home }
    }

    /// Convert a step to Python; one that cannot be converted ends the script, since the host could not continue it.
    fn convert_step(&self, py: Python<'_>, step: Step) -> PyResult<Py<PyAny>> {
        self.step_to_python(py, step).inspect_err(|_| {
            let _ = self.close(py);
        })
    }

    fn step_to_python(&self, py: Python<'_>, step: Step) -> PyResult<Py<PyAny>> {
        match step {
            Step::Waiting { calls, dropped } => {
                let calls = calls
                    .into_iter()
                    .map(|call| {
                        let args = self.objects(py, &call.arguments)?;
                        Py::new(py, Call { id: call.id, name: call.name, args })
                    })
                    .collect::<PyResult<Vec<_>>>()?;
                Ok(Py::new(py, Waiting { calls: PyList::new(py, calls)?.unbind(), dropped })?.into_any())
            }
            Step::Done(values) => {
                let values = self.objects(py, &values)?;
                let value = match values.bind(py).len() {
                    0 => py.None(),
                    1 => values.bind(py).get_item(0)?.unbind(),
                    _ => values.clone_ref(py).into_any(),
                };
                Ok(Py::new(py, Done { value, values })?.into_any())
            }
        }
    }

    /// Step with JSON, without making Python objects.
    fn json<'py>(
        &self,
        py: Python<'py>,
        given: &[u8],
        step: impl FnOnce(&Core, &Value) -> Result<Step> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let output = self.home.run(py, |core| {
            let given = json::read(given)?;
            // A step that cannot be encoded ends the script: the host could not continue it.
            json::write(&step(core, &given)?).inspect_err(|_| self.script.close())
        })?;
        Ok(PyBytes::new(py, &output))
    }

    fn objects(&self, py: Python<'_>, values: &[Value]) -> PyResult<Py<PyList>> {
        let objects = values.iter().map(|value| to_python(py, value, &self.home)).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, objects)?.unbind())
    }
}

#[pymethods]
impl Stepper {
    /// Run with these arguments until every coroutine waits or the main function ended.
    #[pyo3(signature = (args=None))]
    fn start(&self, py: Python<'_>, args: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let arguments = match args {
            None => Vec::new(),
            Some(args) => {
                args.try_iter()?.map(|argument| to_value(&argument?, &self.home)).collect::<PyResult<Vec<_>>>()?
            }
        };
        let step = self.home.run(py, |core| self.script.start(core, &arguments))?;
        self.convert_step(py, step)
    }

    /// Give a call its result, or a tuple of several, and run on.
    #[pyo3(signature = (call_id, value=None))]
    fn answer(&self, py: Python<'_>, call_id: u64, value: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let values = match value {
            None => vec![Value::Nil],
            Some(value) => results(value, &self.home)?,
        };
        let step = self.home.run(py, |core| self.script.answer(core, call_id, &values))?;
        self.convert_step(py, step)
    }

    /// Raise an error where a call was made, and run on: a message, a value or an exception.
    fn fail(&self, py: Python<'_>, call_id: u64, error: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let value = if error.is_instance_of::<pyo3::exceptions::PyBaseException>() {
            errors::to_luau(py, PyErr::from_value(error.clone()), &self.home)
        } else {
            to_value(error, &self.home)?
        };
        let step = self.home.run(py, |core| self.script.fail(core, call_id, &value))?;
        self.convert_step(py, step)
    }

    /// As ``start``, with a JSON list of arguments; gives ``{"calls": …, "dropped": …}`` or ``{"done": …}``.
    fn start_json<'py>(&self, py: Python<'py>, args: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, args, |core, args| match args {
            Value::List(arguments) => self.script.start(core, arguments),
            _ => Err(Error::Conversion("arguments are a list".to_owned())),
        })
    }

    /// As ``answer``, with a JSON list of results.
    fn answer_json<'py>(&self, py: Python<'py>, call_id: u64, results: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, results, |core, results| match results {
            Value::List(values) => self.script.answer(core, call_id, values),
            _ => Err(Error::Conversion("results are a list".to_owned())),
        })
    }

    /// As ``fail``, with an error in JSON.
    fn fail_json<'py>(&self, py: Python<'py>, call_id: u64, error: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, error, |core, error| self.script.fail(core, call_id, error))
    }

    /// Forget the script and whatever it waits for; twice is once.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.home.vm.is_closed() {
            return Ok(());
        }
        self.home.quick(py, |_| {
            self.script.close();
            Ok(())
        })
    }

    /// Seconds of running time so far.
    #[getter]
    fn seconds(&self) -> f64 {
        self.script.used().seconds
    }

    /// Safe points passed so far, if they are counted.
    #[getter]
    fn instructions(&self) -> u64 {
        self.script.used().instructions
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_details))]
    fn __exit__(&self, py: Python<'_>, _details: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
