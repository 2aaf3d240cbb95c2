//! Values that stay in the VM, as Python holds them.

use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use super::convert::{results, to_python, to_python_results, to_value, to_values};
use super::{Home, errors};
use crate::value::{Crossing, Kind, Reference, Value};
use crate::vm::{Entry, ThreadStatus};

/// A Luau table.
#[pyclass(frozen, module = "pyluau")]
pub struct Table {
    pub reference: Arc<Reference>,
    pub home: Arc<Home>,
}

/// A Luau function.
#[pyclass(frozen, module = "pyluau")]
pub struct Function {
    pub reference: Arc<Reference>,
    pub home: Arc<Home>,
}

/// A coroutine, alive as long as this is.
#[pyclass(frozen, module = "pyluau")]
pub struct Thread {
    pub reference: Arc<Reference>,
    pub home: Arc<Home>,
}

/// A Luau buffer, shared with the scripts.
#[pyclass(frozen, module = "pyluau")]
pub struct Buffer {
    pub reference: Arc<Reference>,
    pub home: Arc<Home>,
}

/// Something of a script's that Python can only carry.
#[pyclass(frozen, module = "pyluau")]
pub struct Userdata {
    pub reference: Arc<Reference>,
    pub home: Arc<Home>,
}

pub fn crossing(convert: bool) -> Crossing {
    if convert { Crossing::Deep } else { Crossing::Shallow }
}

fn same(py: Python<'_>, home: &Arc<Home>, left: &Reference, right: &Reference) -> bool {
    Arc::ptr_eq(&left.home, &right.home) && home.quick(py, |core| core.same(left, right)).unwrap_or(false)
}

fn describe(py: Python<'_>, home: &Arc<Home>, reference: &Reference, name: &str) -> String {
    home.quick(py, |core| core.text_of(reference))
        .map_or_else(|_| format!("<{name}>"), |text| format!("<{name} {text}>"))
}

/// The key that an attribute of a table stands for.
fn field<'py>(name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    let text = name.to_str()?;
    if text.starts_with("__") || name.py().get_type::<Table>().hasattr(name)? {
        return Err(PyAttributeError::new_err(format!("{text:?} is not a field here; use table[{text:?}]")));
    }
    Ok(name.clone().into_any())
}

#[pymethods]
impl Table {
    /// The value of a key, by ``__index`` too.
    #[pyo3(signature = (key, default=None))]
    fn get(&self, py: Python<'_>, key: &Bound<'_, PyAny>, default: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let key = to_value(key, &self.home)?;
        match self.home.run(py, |core| core.get(&self.reference, &key, false))? {
            Value::Nil => Ok(default.unwrap_or_else(|| py.None())),
            value => to_python(py, &value, &self.home),
        }
    }

    /// Set a key, by ``__newindex`` too; ``None`` deletes it.
    fn set(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (to_value(key, &self.home)?, to_value(value, &self.home)?);
        self.home.run(py, |core| core.set(&self.reference, &key, &value, false))
    }

    /// The value of a key, past any metatable.
    fn raw_get(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let key = to_value(key, &self.home)?;
        let value = self.home.quick(py, |core| core.get(&self.reference, &key, true))?;
        to_python(py, &value, &self.home)
    }

    /// Set a key, past any metatable.
    fn raw_set(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (to_value(key, &self.home)?, to_value(value, &self.home)?);
        self.home.quick(py, |core| core.set(&self.reference, &key, &value, true))
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let given = to_value(key, &self.home)?;
        match self.home.run(py, |core| core.get(&self.reference, &given, false))? {
            Value::Nil => Err(PyKeyError::new_err(key.clone().unbind())),
            value => to_python(py, &value, &self.home),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(py, key, value)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = to_value(key, &self.home)?;
        self.home.run(py, |core| core.set(&self.reference, &key, &Value::Nil, false))
    }

    /// The value of a key that is a name: ``table.name`` is ``table["name"]``, where ``Table`` has no such method.
    fn __getattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        let text = name.to_str()?;
        if !text.starts_with("__") {
            let value = self.home.run(py, |core| core.get(&self.reference, &Value::text(text), false))?;
            if !matches!(value, Value::Nil) {
                return to_python(py, &value, &self.home);
            }
        }
        Err(PyAttributeError::new_err(format!("the table has no field {text:?}")))
    }

    fn __setattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(py, &field(name)?, value)
    }

    fn __delattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<()> {
        self.__delitem__(py, &field(name)?)
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = to_value(key, &self.home)?;
        Ok(!matches!(self.home.run(py, |core| core.get(&self.reference, &key, false))?, Value::Nil))
    }

    /// As Luau's ``#``.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.home.run(py, |core| core.length(&self.reference))
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The pairs of the table as they are now; tables among them are handles.
    fn items(&self, py: Python<'_>) -> PyResult<Vec<(Py<PyAny>, Py<PyAny>)>> {
        let (pairs, _) = self.home.quick(py, |core| core.entries(&self.reference, 0, usize::MAX))?;
        pairs
            .iter()
            .map(|(key, value)| Ok((to_python(py, key, &self.home)?, to_python(py, value, &self.home)?)))
            .collect()
    }

    fn keys(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        Ok(self.items(py)?.into_iter().map(|(key, _)| key).collect())
    }

    fn values(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        Ok(self.items(py)?.into_iter().map(|(_, value)| value).collect())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.keys(py)?.into_pyobject(py)?.try_iter()?.into_any().unbind())
    }

    /// The whole table by value: a list or a dict, and so on inside.
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let value = self.home.quick(py, |core| core.value_of(&self.reference, Crossing::Deep))?;
        to_python(py, &value, &self.home)
    }

    /// Forbid any change, or allow it again.
    #[pyo3(signature = (read_only=true))]
    fn freeze(&self, py: Python<'_>, read_only: bool) -> PyResult<()> {
        self.home.quick(py, |core| core.set_read_only(&self.reference, read_only))
    }

    /// Give the table a metatable, or none.
    fn set_metatable(&self, py: Python<'_>, metatable: Option<&Bound<'_, Table>>) -> PyResult<()> {
        let metatable = metatable.map(|table| table.get().reference.clone());
        self.home.quick(py, |core| core.set_metatable(&self.reference, metatable.as_deref()))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Table>().is_ok_and(|other| same(py, &self.home, &self.reference, &other.get().reference))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        describe(py, &self.home, &self.reference, "Table")
    }
}

#[pymethods]
impl Function {
    /// Call it; tables among the results come by value.
    #[pyo3(signature = (*arguments))]
    fn __call__(&self, py: Python<'_>, arguments: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        self.call(py, arguments, true)
    }

    /// Call it; with ``convert=False`` tables among the results come as handles.
    #[pyo3(signature = (*arguments, convert=true))]
    fn call(&self, py: Python<'_>, arguments: &Bound<'_, PyTuple>, convert: bool) -> PyResult<Py<PyAny>> {
        let arguments = to_values(arguments, &self.home)?;
        let entry = Entry::Function(self.reference.clone());
        let results = self.home.run(py, |core| core.execute(&entry, None, &arguments, Some(crossing(convert))))?;
        to_python_results(py, &results, &self.home)
    }

    /// A function with the same code, whose globals are in ``env``.
    fn with_env(&self, py: Python<'_>, env: &Bound<'_, PyAny>) -> PyResult<Function> {
        let Some(env) = environment(Some(env), &self.home)? else {
            return Err(PyTypeError::new_err("env is a dict or a Table"));
        };
        match self.home.quick(py, |core| core.with_environment(&self.reference, &env))? {
            Value::Reference(reference) => Ok(Function { reference, home: self.home.clone() }),
            _ => Err(PyTypeError::new_err("only a function has globals")),
        }
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Function>().is_ok_and(|other| same(py, &self.home, &self.reference, &other.get().reference))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        describe(py, &self.home, &self.reference, "Function")
    }
}

impl Thread {
    fn go(&self, py: Python<'_>, values: &[Value], failing: bool, convert: bool) -> PyResult<Py<PyAny>> {
        let (_, results) =
            self.home.run(py, |core| core.resume(&self.reference, values, failing, crossing(convert)))?;
        to_python_results(py, &results, &self.home)
    }
}

#[pymethods]
impl Thread {
    #[new]
    fn new(py: Python<'_>, function: &Bound<'_, Function>) -> PyResult<Thread> {
        let function = function.get();
        match function.home.quick(py, |core| core.new_thread(&function.reference))? {
            Value::Reference(reference) => Ok(Thread { reference, home: function.home.clone() }),
            _ => Err(PyTypeError::new_err("a thread is made of a function")),
        }
    }

    /// Run until the thread yields or ends; return the values it yielded or returned.
    #[pyo3(signature = (*arguments, convert=true))]
    fn resume(&self, py: Python<'_>, arguments: &Bound<'_, PyTuple>, convert: bool) -> PyResult<Py<PyAny>> {
        self.go(py, &to_values(arguments, &self.home)?, false, convert)
    }

    /// As ``resume``, for the first time.
    #[pyo3(signature = (*arguments, convert=true))]
    fn start(&self, py: Python<'_>, arguments: &Bound<'_, PyTuple>, convert: bool) -> PyResult<Py<PyAny>> {
        self.resume(py, arguments, convert)
    }

    /// Raise an error where it yielded: an exception, or a value as Luau's ``error`` takes it.
    #[pyo3(signature = (error, *, convert=true))]
    fn throw(&self, py: Python<'_>, error: &Bound<'_, PyAny>, convert: bool) -> PyResult<Py<PyAny>> {
        let value = if error.is_instance_of::<pyo3::exceptions::PyBaseException>() {
            errors::to_luau(py, PyErr::from_value(error.clone()), &self.home)
        } else {
            to_value(error, &self.home)?
        };
        self.go(py, &[value], true, convert)
    }

    /// ``suspended``, ``running``, ``normal``, ``finished`` or ``failed``.
    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(match self.home.quick(py, |core| core.thread_status(&self.reference))? {
            ThreadStatus::Suspended => "suspended",
            ThreadStatus::Running => "running",
            ThreadStatus::Normal => "normal",
            ThreadStatus::Finished => "finished",
            ThreadStatus::Failed => "failed",
        })
    }

    #[getter]
    fn is_yieldable(&self, py: Python<'_>) -> PyResult<bool> {
        self.home.quick(py, |core| core.is_yieldable(&self.reference))
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Resume it, and return what it yields; when it returns, the iteration ends.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.home.quick(py, |core| core.thread_status(&self.reference))? {
            ThreadStatus::Finished | ThreadStatus::Failed => return Ok(None),
            _ => {}
        }
        match self.home.run(py, |core| core.resume(&self.reference, &[], false, Crossing::Deep))? {
            (true, values) => Ok(Some(to_python_results(py, &values, &self.home)?)),
            (false, _) => Ok(None),
        }
    }

    /// End it where it is.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.home.quick(py, |core| core.close_thread(&self.reference))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Thread>().is_ok_and(|other| same(py, &self.home, &self.reference, &other.get().reference))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        describe(py, &self.home, &self.reference, "Thread")
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.home.quick(py, |core| core.length(&self.reference))
    }

    fn __bytes__(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        self.read(py, 0, None)
    }

    /// The bytes of a range.
    #[pyo3(signature = (start=0, end=None))]
    fn read(&self, py: Python<'_>, start: usize, end: Option<usize>) -> PyResult<Py<PyBytes>> {
        let bytes = self.home.quick(py, |core| {
            let end = end.map_or_else(|| core.length(&self.reference), Ok)?;
            core.read_buffer(&self.reference, start, end)
        })?;
        Ok(PyBytes::new(py, &bytes).unbind())
    }

    /// Write bytes from ``start`` on; a buffer does not grow.
    fn write(&self, py: Python<'_>, start: usize, data: &[u8]) -> PyResult<()> {
        self.home.quick(py, |core| core.write_buffer(&self.reference, start, data))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Buffer>().is_ok_and(|other| same(py, &self.home, &self.reference, &other.get().reference))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        describe(py, &self.home, &self.reference, "Buffer")
    }
}

#[pymethods]
impl Userdata {
    fn __repr__(&self, py: Python<'_>) -> String {
        describe(py, &self.home, &self.reference, "Userdata")
    }
}

/// The table a value refers to.
pub fn table(py: Python<'_>, value: Value, home: &Arc<Home>) -> PyResult<Table> {
    match value {
        Value::Reference(reference) if reference.kind == Kind::Table => Ok(Table { reference, home: home.clone() }),
        _ => Err(errors::conversion(py, "not a table")),
    }
}

/// What an environment may be: a dict of values, or a table.
pub fn environment(given: Option<&Bound<'_, PyAny>>, home: &Arc<Home>) -> PyResult<Option<Value>> {
    match given {
        None => Ok(None),
        Some(given) if given.is_instance_of::<PyDict>() || given.is_instance_of::<Table>() => {
            Ok(results(given, home)?.into_iter().next())
        }
        Some(_) => Err(PyTypeError::new_err("env is a dict or a Table")),
    }
}
