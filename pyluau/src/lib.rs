//! The Luau VM for Python. `python` is the only module that names PyO3, `vm` the only one that names the VM.

mod bytecode;
mod error;
mod json;
mod limits;
mod python;
mod stack;
mod step;
mod value;
mod vm;
