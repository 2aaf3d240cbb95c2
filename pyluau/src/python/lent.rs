//! Python objects that scripts may use, by the attributes that their owner names.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::convert::{reply_of, to_python, to_python_list, to_value};
use super::{Home, errors};
use crate::value::{Callback, Object, Reply, Value};

/// An object, and what of it scripts may use.
struct Loan {
    object: Py<PyAny>,
    readable: Vec<String>,
    writable: Vec<String>,
}

/// A Python object that scripts may use by the attributes named here, and by no others.
///
/// ``attributes`` can be read, and called if they are methods (``object:method(…)``); ``writable`` ones can be assigned.
#[pyclass(frozen, module = "pyluau")]
pub struct Lent(Arc<Loan>);

fn names(given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if given.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("attributes are a list of names, not one string"));
    }
    given
        .try_iter()?
        .map(|name| {
            let name = name?.extract::<String>()?;
            if name.starts_with('_') {
                return Err(PyValueError::new_err(format!("{name:?} cannot be lent: it is private")));
            }
            Ok(name)
        })
        .collect()
}

#[pymethods]
impl Lent {
    #[new]
    #[pyo3(signature = (object, attributes, *, writable=None))]
    fn new(object: Py<PyAny>, attributes: &Bound<'_, PyAny>, writable: Option<&Bound<'_, PyAny>>) -> PyResult<Lent> {
        let writable = writable.map(names).transpose()?.unwrap_or_default();
        Ok(Lent(Arc::new(Loan { object, readable: names(attributes)?, writable })))
    }

    /// The object itself.
    #[getter]
    fn object(&self, py: Python<'_>) -> Py<PyAny> {
        self.0.object.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Lent({}, {:?})", self.0.object.bind(py).repr()?, self.0.readable))
    }
}

impl Lent {
    /// The object as a value of a state.
    pub fn value(&self, home: &Arc<Home>) -> Value {
        Value::Object(Arc::new(LentObject { loan: self.0.clone(), home: Arc::downgrade(home) }))
    }
}

/// A lent object while a script holds it.
pub struct LentObject {
    loan: Arc<Loan>,
    home: Weak<Home>,
}

impl LentObject {
    pub fn object(&self, py: Python<'_>) -> Py<PyAny> {
        self.loan.object.clone_ref(py)
    }

    /// Use the object; a script sees of an exception only that `name` failed.
    fn use_object<T>(&self, name: &str, body: impl FnOnce(Python<'_>, &Arc<Home>) -> PyResult<T>) -> Result<T, Value> {
        let Some(home) = self.home.upgrade() else { return Err(Value::text("the state is closed")) };
        Python::attach(|py| body(py, &home).map_err(|error| errors::to_luau_hidden(py, error, name, &home)))
    }
}

fn allowed<'a>(names: &'a [String], name: &[u8], what: &str) -> Result<&'a str, Value> {
    names.iter().map(String::as_str).find(|known| known.as_bytes() == name).ok_or_else(|| {
        Value::text(&format!("attribute '{}' of the object cannot be {what}", String::from_utf8_lossy(name)))
    })
}

impl Object for LentObject {
    fn message(&self) -> String {
        "object".to_owned()
    }

    fn get(&self, name: &[u8]) -> Result<Value, Value> {
        let name = allowed(&self.loan.readable, name, "read")?;
        self.use_object(name, |py, home| {
            let value = self.loan.object.bind(py).getattr(name)?;
            if !value.is_callable() {
                return to_value(&value, home);
            }
            Ok(Value::Callback(Arc::new(Method {
                function: value.unbind(),
                name: name.to_owned(),
                owner: LentObject { loan: self.loan.clone(), home: self.home.clone() },
            })))
        })
    }

    fn set(&self, name: &[u8], value: Value) -> Result<(), Value> {
        let name = allowed(&self.loan.writable, name, "written")?;
        self.use_object(name, |py, home| self.loan.object.bind(py).setattr(name, to_python(py, &value, home)?))
    }

    fn same(&self, other: &dyn Object) -> bool {
        other.as_any().downcast_ref::<LentObject>().is_some_and(|other| self.loan.object.is(&other.loan.object))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A method of a lent object, which a script calls with the object first.
struct Method {
    function: Py<PyAny>,
    name: String,
    owner: LentObject,
}

impl Callback for Method {
    fn call(&self, arguments: Vec<Value>) -> Result<Reply, Value> {
        let given = match arguments.split_first() {
            Some((Value::Object(object), given)) if self.owner.same(&**object) => given,
            _ => return Err(Value::text(&format!("call it with a colon: object:{}(…)", self.name))),
        };
        self.owner.use_object(&self.name, |py, home| {
            let arguments = PyTuple::new(py, to_python_list(py, given, home)?)?;
            reply_of(&self.function.bind(py).call1(arguments)?, home)
        })
    }

    fn shallow(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A coroutine of Python's on its way to the host that awaits it.
pub struct Awaitable {
    coroutine: Py<PyAny>,
    taken: AtomicBool,
}

impl Awaitable {
    pub fn value(coroutine: &Bound<'_, PyAny>) -> Value {
        Value::Object(Arc::new(Awaitable { coroutine: coroutine.clone().unbind(), taken: AtomicBool::new(false) }))
    }

    /// The coroutine, which the caller awaits or closes.
    pub fn take(&self, py: Python<'_>) -> Py<PyAny> {
        self.taken.store(true, Ordering::Relaxed);
        self.coroutine.clone_ref(py)
    }
}

impl Drop for Awaitable {
    fn drop(&mut self) {
        if !self.taken.load(Ordering::Relaxed) {
            // Python warns of coroutines that were neither awaited nor closed.
            Python::attach(|py| {
                let _ = self.coroutine.call_method0(py, "close");
            });
        }
    }
}

impl Object for Awaitable {
    fn message(&self) -> String {
        "coroutine".to_owned()
    }

    fn get(&self, _name: &[u8]) -> Result<Value, Value> {
        Ok(Value::Nil)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
