//! `State`: one VM.

use std::sync::{Arc, Mutex, OnceLock};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use super::convert::{Callable, callback, to_python, to_python_results, to_value, to_values};
use super::handles::{Function, Table, crossing, environment, table};
use super::limits::Limits;
use super::stepper::Stepper;
use super::{Home, Strings, errors};
use crate::bytecode;
use crate::error::Error;
use crate::value::{Callback, Value};
use crate::vm::{self, Entry, Optimization, Options, Script, Surroundings, Vm};

/// A Luau VM.
#[pyclass(frozen, subclass, module = "pyluau")]
pub struct State {
    home: Arc<Home>,
    limits: Limits,
    seed: Option<u64>,
    clock: Option<Arc<Callable>>,
    key: Option<Vec<u8>>,
}

/// Source text: `str`, or `bytes` as they are.
pub fn source(given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes().to_vec());
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    Err(PyTypeError::new_err(format!("a source is str or bytes, not {}", given.get_type().name()?)))
}

fn optimization(level: u8) -> PyResult<Optimization> {
    if level > 2 {
        return Err(PyValueError::new_err(format!("opt is 0, 1 or 2, not {level}")));
    }
    Ok(Optimization(level))
}

/// Compile a source to bytecode that ``State.load`` takes; see the README for ``key``.
#[pyfunction]
#[pyo3(signature = (source, opt=2, *, chunkname="=chunk", key=None))]
pub fn compile<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    opt: u8,
    chunkname: &str,
    key: Option<&[u8]>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (text, level) = (self::source(source)?, optimization(opt)?);
    match py.detach(|| vm::compile(&text, chunkname, level)) {
        Ok(code) => Ok(PyBytes::new(py, &bytecode::seal(key, &vm::version(), &code))),
        Err(Error::Syntax(message)) => Err(errors::syntax(py, &message)),
        Err(_) => Err(PyValueError::new_err("the source cannot be compiled")),
    }
}

fn callable(given: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Option<Arc<Callable>>> {
    match given {
        None => Ok(None),
        Some(given) if given.is_callable() => {
            Ok(Some(Arc::new(Callable { function: given.clone().unbind(), home: OnceLock::new(), shallow: false })))
        }
        Some(_) => Err(PyTypeError::new_err(format!("{name} is a function"))),
    }
}

fn surroundings(clock: Option<&Arc<Callable>>, seed: Option<u64>) -> Surroundings {
    Surroundings { clock: clock.map(|clock| clock.clone() as Arc<dyn Callback>), seed }
}

/// Let Ctrl-C stop a script: Python notices signals only while it runs itself.
fn signals(passing: &Arc<Mutex<Option<PyErr>>>) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let passing = passing.clone();
    Arc::new(move || {
        Python::attach(|py| match py.check_signals() {
            Ok(()) => false,
            Err(error) => {
                if let Ok(mut passing) = passing.lock() {
                    *passing = Some(error);
                }
                true
            }
        })
    })
}

impl State {
    fn entry(&self, given: &Bound<'_, PyAny>, chunk: &str, level: Optimization) -> PyResult<Entry> {
        if let Ok(function) = given.cast::<Function>() {
            return Ok(Entry::Function(function.get().reference.clone()));
        }
        let text = source(given)?;
        if given.is_instance_of::<PyBytes>() && bytecode::is_sealed(&text) {
            return Ok(Entry::Sealed { code: text, chunk: chunk.to_owned() });
        }
        Ok(Entry::Source { text, chunk: chunk.to_owned(), optimization: level })
    }

    /// Preludes: one, several or none.
    fn preludes(&self, given: Option<&Bound<'_, PyAny>>, level: Optimization) -> PyResult<Vec<Entry>> {
        match given {
            None => Ok(Vec::new()),
            Some(given) => match given.cast::<pyo3::types::PyList>() {
                Ok(several) => several.iter().map(|one| self.entry(&one, "=prelude", level)).collect(),
                Err(_) => Ok(vec![self.entry(given, "=prelude", level)?]),
            },
        }
    }
}

#[pymethods]
impl State {
    #[new]
    #[pyo3(signature = (*, sandbox=true, limits=None, native=false, seed=None, clock=None, print=None, strings="auto", key=None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python's")]
    fn new(
        py: Python<'_>,
        sandbox: bool,
        limits: Option<&Bound<'_, Limits>>,
        native: bool,
        seed: Option<u64>,
        clock: Option<&Bound<'_, PyAny>>,
        print: Option<&Bound<'_, PyAny>>,
        strings: &str,
        key: Option<Vec<u8>>,
    ) -> PyResult<State> {
        let limits = limits.map_or_else(Limits::default, |limits| limits.get().clone());
        let strings = match strings {
            "auto" => Strings::Auto,
            "str" => Strings::Text,
            "bytes" => Strings::Bytes,
            other => return Err(PyValueError::new_err(format!("strings is 'auto', 'str' or 'bytes', not {other:?}"))),
        };
        let clock = callable(clock, "clock")?;
        let print = match print {
            Some(print) => callable(Some(print), "print")?,
            None => callable(Some(&py.import("pyluau.types")?.getattr("write_line")?), "print")?,
        }
        .ok_or_else(|| PyTypeError::new_err("print is a function"))?;
        let passing = Arc::new(Mutex::new(None));
        let options = Options {
            sandbox,
            native,
            limits: limits.inner(),
            surroundings: surroundings(clock.as_ref(), seed),
            print: print.clone(),
            poll: signals(&passing),
            key: key.clone(),
        };
        let vm = Vm::new(options).map_err(|error| match error {
            Error::Stopped { .. } => PyValueError::new_err("the memory limit is too small for a VM"),
            _ => PyValueError::new_err("the VM cannot be made"),
        })?;
        let home = Arc::new(Home { vm, strings, sandbox, passing });
        for function in clock.iter().chain([&print]) {
            let _ = function.home.set(Arc::downgrade(&home));
        }
        Ok(State { home, limits, seed, clock, key })
    }

    /// Free the VM and everything in it; twice is once.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.home.vm.close()).map_err(|error| errors::to_python(py, error, &self.home))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.home.vm.is_closed()
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_details))]
    fn __exit__(&self, py: Python<'_>, _details: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Run a script for its effects.
    #[pyo3(signature = (source, *, chunkname="=chunk", opt=2, env=None))]
    fn execute(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        chunkname: &str,
        opt: u8,
        env: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let entry = Entry::Source {
            text: self::source(source)?,
            chunk: chunkname.to_owned(),
            optimization: optimization(opt)?,
        };
        let env = environment(env, &self.home)?;
        self.home.run(py, |core| core.execute(&entry, env.as_ref(), &[], None))?;
        Ok(())
    }

    /// Run an expression or a script, and return its results.
    #[pyo3(signature = (source, *arguments, chunkname="=chunk", opt=2, env=None, convert=true))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python's")]
    fn eval(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyTuple>,
        chunkname: &str,
        opt: u8,
        env: Option<&Bound<'_, PyAny>>,
        convert: bool,
    ) -> PyResult<Py<PyAny>> {
        let (text, level) = (self::source(source)?, optimization(opt)?);
        let env = environment(env, &self.home)?;
        let arguments = to_values(arguments, &self.home)?;
        let results = self.home.run(py, |core| {
            let code = vm::compile_expression(&text, chunkname, level)?;
            core.execute(
                &Entry::Code { code, chunk: chunkname.to_owned() },
                env.as_ref(),
                &arguments,
                Some(crossing(convert)),
            )
        })?;
        to_python_results(py, &results, &self.home)
    }

    /// Compile with this state's key; see ``pyluau.compile``.
    #[pyo3(signature = (source, opt=2, *, chunkname="=chunk"))]
    fn compile<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        opt: u8,
        chunkname: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        compile(py, source, opt, chunkname, self.key.as_deref())
    }

    /// Make a function of bytecode that ``compile`` made with the same key.
    #[pyo3(signature = (bytecode, chunkname="=chunk", env=None))]
    fn load(
        &self,
        py: Python<'_>,
        bytecode: &[u8],
        chunkname: &str,
        env: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let entry = Entry::Sealed { code: bytecode.to_vec(), chunk: chunkname.to_owned() };
        let env = environment(env, &self.home)?;
        let function = self.home.quick(py, |core| core.load_function(&entry, env.as_ref()))?;
        to_python(py, &function, &self.home)
    }

    /// Call a function by handle or by the name of a global.
    #[pyo3(signature = (function, *arguments, convert=true))]
    fn call(
        &self,
        py: Python<'_>,
        function: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyTuple>,
        convert: bool,
    ) -> PyResult<Py<PyAny>> {
        let function = match to_value(function, &self.home)? {
            Value::Text(_) => self.globals(py)?.into_pyobject(py)?.into_any().get_item(function)?,
            _ => function.clone(),
        };
        let arguments = to_values(arguments, &self.home)?;
        let Value::Reference(reference) = to_value(&function, &self.home)? else {
            let name = function.get_type().name()?.to_string();
            return Err(PyTypeError::new_err(format!("only a Luau function can be called, not {name}")));
        };
        let entry = Entry::Function(reference);
        let results = self.home.run(py, |core| core.execute(&entry, None, &arguments, Some(crossing(convert))))?;
        to_python_results(py, &results, &self.home)
    }

    /// The globals of the VM, which every environment falls back to.
    #[getter]
    fn globals(&self, py: Python<'_>) -> PyResult<Table> {
        let value = self.home.quick(py, vm::Core::globals)?;
        table(py, value, &self.home)
    }

    /// ``request``, ``spawn``, ``park``, ``wake`` and ``array``, for preludes.
    #[getter]
    fn primitives(&self, py: Python<'_>) -> PyResult<Table> {
        let value = self.home.quick(py, vm::Core::primitives)?;
        table(py, value, &self.home)
    }

    /// A table by handle: of a list or dict, or empty with room for as many.
    #[pyo3(signature = (value=None, *, array=0, fields=0))]
    fn table(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>, array: u16, fields: u16) -> PyResult<Table> {
        let value = value.map(|value| to_value(value, &self.home)).transpose()?;
        let made = self.home.quick(py, |core| core.new_table(value.as_ref(), array.into(), fields.into()))?;
        table(py, made, &self.home)
    }

    /// An environment that several scripts can share.
    #[pyo3(signature = (values=None))]
    fn environment(&self, py: Python<'_>, values: Option<&Bound<'_, PyDict>>) -> PyResult<Table> {
        let values = match values {
            Some(values) => to_value(values, &self.home)?,
            None => Value::Map(Vec::new()),
        };
        let made = self.home.quick(py, |core| core.environment(&values))?;
        table(py, made, &self.home)
    }

    /// Make a Python function a global; ``convert=False`` hands it tables as handles.
    #[pyo3(signature = (name, function, *, convert=true))]
    fn register(&self, py: Python<'_>, name: &str, function: &Bound<'_, PyAny>, convert: bool) -> PyResult<()> {
        if !function.is_callable() {
            return Err(PyTypeError::new_err(format!("{name:?} needs a function")));
        }
        let value = match to_value(function, &self.home)? {
            Value::Callback(_) => Value::Callback(callback(function, &self.home, !convert)),
            value => value,
        };
        self.home.quick(py, |core| core.set_global(name, &value))
    }

    /// Remove a global.
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.home.quick(py, |core| core.set_global(name, &Value::Nil))
    }

    /// Make any value a global, which scripts cannot change.
    fn define(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = to_value(value, &self.home)?;
        self.home.quick(py, |core| core.set_global(name, &value))
    }

    /// Give all values of the type of ``example`` a metatable, as strings have one.
    fn set_type_metatable(
        &self,
        py: Python<'_>,
        example: &Bound<'_, PyAny>,
        metatable: &Bound<'_, Table>,
    ) -> PyResult<()> {
        let example = to_value(example, &self.home)?;
        if matches!(example, Value::List(_) | Value::Map(_) | Value::Reference(_) | Value::Object(_)) {
            return Err(PyTypeError::new_err("a table has a metatable of its own"));
        }
        let metatable = metatable.get().reference.clone();
        self.home.quick(py, |core| core.set_type_metatable(&example, &metatable))
    }

    /// Bytes the VM holds.
    #[getter]
    fn memory_used(&self, py: Python<'_>) -> PyResult<usize> {
        self.home.quick(py, |core| Ok(core.memory_used()))
    }

    /// Collect garbage now.
    fn collect(&self, py: Python<'_>) -> PyResult<()> {
        self.home.run(py, vm::Core::collect)
    }

    #[getter]
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    /// Which Luau this is.
    #[getter]
    fn version(&self) -> String {
        vm::version()
    }

    /// The stack, for debugging.
    fn dump(&self, py: Python<'_>) -> PyResult<String> {
        self.home.quick(py, |core| Ok(core.dump()))
    }

    /// Stop the running script from another thread; return whether one was running.
    fn cancel(&self) -> bool {
        self.home.vm.cancel()
    }

    /// A script that is run step by step; it may share the VM with others.
    #[pyo3(signature = (script, *, env=None, prelude=None, expose=false, chunkname="=chunk", opt=2, limits=None, seed=None, clock=None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python's")]
    fn stepper(
        &self,
        py: Python<'_>,
        script: &Bound<'_, PyAny>,
        env: Option<&Bound<'_, PyAny>>,
        prelude: Option<&Bound<'_, PyAny>>,
        expose: bool,
        chunkname: &str,
        opt: u8,
        limits: Option<&Bound<'_, Limits>>,
        seed: Option<u64>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Stepper> {
        let level = optimization(opt)?;
        let entry = self.entry(script, chunkname, level)?;
        let preludes = self.preludes(prelude, level)?;
        let env = environment(env, &self.home)?;
        let limits = limits.map_or_else(|| self.limits.inner(), |limits| limits.get().inner());
        let clock = match callable(clock, "clock")? {
            Some(clock) => {
                let _ = clock.home.set(Arc::downgrade(&self.home));
                Some(clock)
            }
            None => self.clock.clone(),
        };
        let surroundings = surroundings(clock.as_ref(), seed.or(self.seed));
        let script = self
            .home
            .run(py, |core| Script::new(core, &entry, env.as_ref(), &preludes, expose, limits, &surroundings))?;
        Ok(Stepper::new(script, self.home.clone()))
    }

    fn __repr__(&self) -> String {
        format!("<State {} at {self:p}>", vm::version())
    }
}
