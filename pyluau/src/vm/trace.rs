//! Where a script is, in words.

use std::ffi::{CStr, c_int};

use mlua::ffi::{self, lua_State};

/// The stack of a coroutine, one frame a line.
pub unsafe fn traceback(state: *mut lua_State, level: c_int) -> String {
    let mut lines = Vec::new();
    for level in level..level.saturating_add(64) {
        // SAFETY: the record is plain data that `lua_getinfo` fills.
        unsafe {
            let mut record: ffi::lua_Debug = std::mem::zeroed();
            if ffi::lua_getinfo(state, level, c"sln".as_ptr(), &mut record) == 0 {
                break;
            }
            let source = CStr::from_ptr(record.short_src).to_string_lossy();
            let mut line =
                if record.currentline > 0 { format!("{source}:{}", record.currentline) } else { source.into_owned() };
            if !record.name.is_null() {
                line.push_str(" function ");
                line.push_str(&CStr::from_ptr(record.name).to_string_lossy());
            }
            lines.push(line);
        }
    }
    lines.join("\n")
}
