//! What needs no VM: the compiler, names, versions, flags.

use std::ffi::{CString, c_int};

use mlua::ffi;

use crate::error::{Error, Result};

/// How much the compiler optimises.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Optimization(pub u8);

/// Which Luau this is.
pub fn version() -> String {
    format!("Luau {}", ffi::luau_version().unwrap_or("0"))
}

pub fn native_supported() -> bool {
    // SAFETY: takes nothing and only looks at the processor.
    unsafe { ffi::luau_codegen_supported() != 0 }
}

/// The name of a chunk as the VM shows it: what follows `=` or `@`, else the first line of a source.
pub fn chunk_id(name: &str) -> String {
    const ROOM: usize = 255;
    let head = |text: &str, most: usize| -> String { text[..text.floor_char_boundary(most)].to_owned() };
    if let Some(name) = name.strip_prefix('=') {
        return head(name, ROOM);
    }
    if let Some(path) = name.strip_prefix('@') {
        if path.len() <= ROOM {
            return path.to_owned();
        }
        return format!("...{}", &path[path.ceil_char_boundary(path.len() - (ROOM - 3))..]);
    }
    let shown = head(name.split(['\n', '\r']).next().unwrap_or_default(), ROOM - 14);
    let more = if shown.len() < name.len() { "..." } else { "" };
    format!("[string \"{shown}{more}\"]")
}

/// Switch one of the VM's own flags, for the whole process; return whether the flag exists.
pub fn set_flag(name: &str, on: bool) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: the name is valid for the call.
    unsafe { ffi::luau_setfflag(name.as_ptr(), c_int::from(on)) != 0 }
}

/// Bytecode for a source, unsealed.
pub fn compile(source: &[u8], chunk: &str, optimization: Optimization) -> Result<Vec<u8>> {
    if let Some(at) = memchr::memchr(0, source) {
        // The compiler would treat NUL as the end and silently ignore the rest.
        let line = 1 + memchr::memchr_iter(b'\n', &source[..at]).count();
        return Err(Error::Syntax(format!("{}:{line}: a source cannot hold NUL", chunk_id(chunk))));
    }
    let mut options = ffi::lua_CompileOptions::default();
    options.optimizationLevel = c_int::from(optimization.0);
    // SAFETY: source and options are valid for the call.
    let code = unsafe { ffi::luau_compile(source, options) };
    match code.split_first() {
        Some((0, message)) => Err(Error::Syntax(format!("{}{}", chunk_id(chunk), String::from_utf8_lossy(message)))),
        Some(_) => Ok(code),
        None => Err(Error::Syntax("the compiler gave nothing".to_owned())),
    }
}

/// Bytecode for an expression or, if it is none, for a chunk.
pub fn compile_expression(source: &[u8], chunk: &str, optimization: Optimization) -> Result<Vec<u8>> {
    let expression = [b"return ", source].concat();
    compile(&expression, chunk, optimization).or_else(|_| compile(source, chunk, optimization))
}
