//! Python objects to values, and back.

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple, PyType,
};

use super::handles::{Buffer, Function, Table, Thread, Userdata};
use super::lent::{Awaitable, Lent, LentObject};
use super::{Home, Strings, errors};
use crate::value::{Callback, Kind, Reply, Value};

/// A value that Python only carries.
#[pyclass(frozen, module = "pyluau._native")]
pub struct Held(pub Value);

/// Whole numbers up to here are the same in both languages.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A Python callable, as a host function.
pub struct Callable {
    pub function: Py<PyAny>,
    /// Set once the state is there.
    pub home: OnceLock<Weak<Home>>,
    pub shallow: bool,
}

impl Callback for Callable {
    fn call(&self, arguments: Vec<Value>) -> Result<Reply, Value> {
        let Some(home) = self.home.get().and_then(Weak::upgrade) else {
            return Err(Value::text("the state is closed"));
        };
        Python::attach(|py| {
            let answer = || -> PyResult<Reply> {
                let arguments = to_python_list(py, &arguments, &home)?;
                reply_of(&self.function.bind(py).call1(PyTuple::new(py, arguments)?)?, &home)
            };
            answer().map_err(|error| errors::to_luau(py, error, &home))
        })
    }

    fn shallow(&self) -> bool {
        self.shallow
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What the result of a host function means.
pub fn reply_of(result: &Bound<'_, PyAny>, home: &Arc<Home>) -> PyResult<Reply> {
    let (py, kind) = (result.py(), result.get_type());
    if kind.is(yield_class(py)?) {
        let values = results(&result.getattr(pyo3::intern!(py, "values"))?, home)?;
        let then = result.getattr(pyo3::intern!(py, "then"))?;
        let then = (!then.is_none()).then(|| callback(&then, home, false));
        return Ok(Reply::Yield { values, then });
    }
    if kind.is(coroutine_class(py)?) {
        return Ok(Reply::Await(Awaitable::value(result)));
    }
    Ok(Reply::Return(results(result, home)?))
}

fn coroutine_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "types", "CoroutineType")
}

fn class<'py>(py: Python<'py>, cell: &'static PyOnceLock<Py<PyType>>, name: &str) -> PyResult<&'py Bound<'py, PyType>> {
    cell.import(py, "pyluau.types", name)
}

fn yield_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    class(py, &CLASS, "Yield")
}

fn vector_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    class(py, &CLASS, "Vector")
}

/// A tuple is several values, anything else is one.
pub fn results(object: &Bound<'_, PyAny>, home: &Arc<Home>) -> PyResult<Vec<Value>> {
    match object.cast_exact::<PyTuple>() {
        Ok(values) => values.iter().map(|value| to_value(&value, home)).collect(),
        Err(_) => Ok(vec![to_value(object, home)?]),
    }
}

/// Several arguments.
pub fn to_values(objects: &Bound<'_, PyTuple>, home: &Arc<Home>) -> PyResult<Vec<Value>> {
    objects.iter_borrowed().map(|object| to_value(&object, home)).collect()
}

/// One object as a value.
pub fn to_value(object: &Bound<'_, PyAny>, home: &Arc<Home>) -> PyResult<Value> {
    Walk { home, path: Vec::new() }.walk(object)
}

/// How deep lists and dicts may be nested on their way in.
const DEPTH: usize = 200;

struct Walk<'a> {
    home: &'a Arc<Home>,
    path: Vec<*mut pyo3::ffi::PyObject>,
}

impl Walk<'_> {
    fn walk(&mut self, object: &Bound<'_, PyAny>) -> PyResult<Value> {
        if let Ok(text) = object.cast_exact::<PyString>() {
            return Ok(Value::Text(text_bytes(text)?));
        }
        if object.is_none() {
            return Ok(Value::Nil);
        }
        if let Ok(flag) = object.cast_exact::<PyBool>() {
            return Ok(Value::Boolean(flag.is_true()));
        }
        if let Ok(number) = object.cast::<PyInt>() {
            return whole(number);
        }
        if let Ok(number) = object.cast::<PyFloat>() {
            return Ok(Value::Number(number.value()));
        }
        if let Ok(dict) = object.cast::<PyDict>() {
            return self.within(object, |walk| {
                let mut pairs = Vec::with_capacity(dict.len());
                for (key, value) in dict {
                    pairs.push((walk.walk(&key)?, walk.walk(&value)?));
                }
                Ok(Value::Map(pairs))
            });
        }
        if let Ok(list) = object.cast::<PyList>() {
            return self.within(object, |walk| {
                Ok(Value::List(list.iter().map(|item| walk.walk(&item)).collect::<PyResult<_>>()?))
            });
        }
        self.walk_rare(object)
    }

    fn walk_rare(&mut self, object: &Bound<'_, PyAny>) -> PyResult<Value> {
        let py = object.py();
        if let Ok(vector) = object.cast::<PyTuple>() {
            if vector.get_type().is(vector_class(py)?) {
                return Ok(Value::Vector(vector.extract::<(f32, f32, f32)>()?.into()));
            }
            return self.within(object, |walk| {
                Ok(Value::List(vector.iter().map(|item| walk.walk(&item)).collect::<PyResult<_>>()?))
            });
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Value::Text(bytes.as_bytes().to_vec()));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(Value::Buffer(bytes.to_vec()));
        }
        if object.is_instance_of::<PyMemoryView>() {
            return Ok(Value::Buffer(object.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Value::Text(text_bytes(text)?));
        }
        if let Some(value) = handle(object) {
            return Ok(value);
        }
        if let Ok(lent) = object.cast::<Lent>() {
            return Ok(lent.get().value(self.home));
        }
        if let Ok(held) = object.cast::<Held>() {
            return Ok(held.get().0.clone());
        }
        if object.is_callable() {
            return Ok(Value::Callback(callback(object, self.home, false)));
        }
        let message = format!("a {} has no counterpart in Luau", object.get_type().name()?);
        Err(errors::conversion(py, &message))
    }

    fn within(
        &mut self,
        object: &Bound<'_, PyAny>,
        body: impl FnOnce(&mut Self) -> PyResult<Value>,
    ) -> PyResult<Value> {
        let address = object.as_ptr();
        if self.path.contains(&address) {
            return Err(errors::conversion(object.py(), "a list or dict that holds itself has no counterpart in Luau"));
        }
        if self.path.len() >= DEPTH {
            return Err(errors::conversion(object.py(), &format!("lists and dicts are nested deeper than {DEPTH}")));
        }
        self.path.push(address);
        let value = body(self);
        self.path.pop();
        value
    }
}

fn text_bytes(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    Ok(text.to_str()?.as_bytes().to_vec())
}

/// Make a host function of a callable.
pub fn callback(function: &Bound<'_, PyAny>, home: &Arc<Home>, shallow: bool) -> Arc<dyn Callback> {
    Arc::new(Callable { function: function.clone().unbind(), home: OnceLock::from(Arc::downgrade(home)), shallow })
}

fn handle(object: &Bound<'_, PyAny>) -> Option<Value> {
    let reference = if let Ok(table) = object.cast::<Table>() {
        &table.get().reference
    } else if let Ok(function) = object.cast::<Function>() {
        &function.get().reference
    } else if let Ok(thread) = object.cast::<Thread>() {
        &thread.get().reference
    } else if let Ok(buffer) = object.cast::<Buffer>() {
        &buffer.get().reference
    } else {
        &object.cast::<Userdata>().ok()?.get().reference
    };
    Some(Value::Reference(reference.clone()))
}

fn whole(number: &Bound<'_, PyInt>) -> PyResult<Value> {
    let float = number.extract::<f64>().unwrap_or(f64::NAN);
    if float.abs() < EXACT || number.as_any().eq(float)? {
        return Ok(Value::Number(float));
    }
    Err(errors::conversion(number.py(), &format!("{number} is not exactly a Luau number")))
}

/// Several values as objects.
pub fn to_python_list<'py>(py: Python<'py>, values: &[Value], home: &Arc<Home>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    values.iter().map(|value| Ok(to_python(py, value, home)?.into_bound(py))).collect()
}

/// No value is `None`, one is itself, several are a tuple.
pub fn to_python_results(py: Python<'_>, values: &[Value], home: &Arc<Home>) -> PyResult<Py<PyAny>> {
    match values {
        [] => Ok(py.None()),
        [value] => to_python(py, value, home),
        values => {
            let objects = values.iter().map(|value| to_python(py, value, home)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyTuple::new(py, objects)?.into_any().unbind())
        }
    }
}

fn from_number(py: Python<'_>, number: f64) -> PyResult<Py<PyAny>> {
    if number.fract() == 0.0 && number.abs() <= EXACT && !(number == 0.0 && number.is_sign_negative()) {
        return Ok((number as i64).into_pyobject(py)?.into_any().unbind());
    }
    Ok(PyFloat::new(py, number).into_any().unbind())
}

fn from_text(py: Python<'_>, text: &[u8], strings: Strings) -> PyResult<Py<PyAny>> {
    match (strings, std::str::from_utf8(text)) {
        (Strings::Bytes, _) | (Strings::Auto, Err(_)) => Ok(PyBytes::new(py, text).into_any().unbind()),
        (_, Ok(text)) => Ok(PyString::new(py, text).into_any().unbind()),
        (Strings::Text, Err(_)) => Err(errors::conversion(py, "a string is not UTF-8")),
    }
}

/// One value as an object.
pub fn to_python(py: Python<'_>, value: &Value, home: &Arc<Home>) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::Nil => py.None(),
        Value::Boolean(flag) => PyBool::new(py, *flag).to_owned().into_any().unbind(),
        Value::Number(number) => from_number(py, *number)?,
        Value::Integer(number) => number.into_pyobject(py)?.into_any().unbind(),
        Value::Text(text) => from_text(py, text, home.strings)?,
        Value::Buffer(bytes) => PyByteArray::new(py, bytes).into_any().unbind(),
        Value::Vector([x, y, z]) => vector_class(py)?.call1((*x, *y, *z))?.unbind(),
        Value::List(items) => {
            let items = items.iter().map(|item| to_python(py, item, home)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any().unbind()
        }
        Value::Map(pairs) => {
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(to_python(py, key, home)?, to_python(py, value, home)?)?;
            }
            if dict.len() != pairs.len() {
                // `true` and 1 are one key of a dict.
                return Err(errors::conversion(py, "a table with keys that are equal in Python has no counterpart"));
            }
            dict.into_any().unbind()
        }
        Value::Callback(callback) => match callback.as_any().downcast_ref::<Callable>() {
            Some(callable) => callable.function.clone_ref(py),
            None => Py::new(py, Held(value.clone()))?.into_any(),
        },
        Value::Object(object) => {
            let object = object.as_any();
            if let Some(exception) = object.downcast_ref::<errors::Exception>() {
                exception.error.value(py).clone().into_any().unbind()
            } else if let Some(lent) = object.downcast_ref::<LentObject>() {
                lent.object(py)
            } else if let Some(awaitable) = object.downcast_ref::<Awaitable>() {
                awaitable.take(py)
            } else {
                Py::new(py, Held(value.clone()))?.into_any()
            }
        }
        Value::Reference(reference) => {
            let (reference, home) = (reference.clone(), home.clone());
            match reference.kind {
                Kind::Table => Py::new(py, Table { reference, home })?.into_any(),
                Kind::Function => Py::new(py, Function { reference, home })?.into_any(),
                Kind::Thread => Py::new(py, Thread { reference, home })?.into_any(),
                Kind::Buffer => Py::new(py, Buffer { reference, home })?.into_any(),
                Kind::Userdata => Py::new(py, Userdata { reference, home })?.into_any(),
            }
        }
    })
}
