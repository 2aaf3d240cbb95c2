//! The allocator of a VM, which counts and refuses.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

pub struct Memory {
    pub used: Cell<usize>,
    pub limit: Cell<usize>,
    /// An allocation was refused since this was last cleared.
    pub refused: Cell<bool>,
    /// Above this, the VM is asked to look at its next safe point.
    pub tidy_at: Cell<usize>,
    slot: Cell<*const AtomicPtr<c_void>>,
    handler: Cell<*mut c_void>,
}

impl Memory {
    pub fn new(limit: Option<usize>) -> Box<Memory> {
        Box::new(Memory {
            used: Cell::new(0),
            limit: Cell::new(limit.unwrap_or(usize::MAX)),
            refused: Cell::new(false),
            tidy_at: Cell::new(limit.map_or(usize::MAX, |limit| limit / 4 * 3)),
            slot: Cell::new(std::ptr::null()),
            handler: Cell::new(std::ptr::null_mut()),
        })
    }

    /// Where to ask the VM to look at its next safe point.
    pub fn attach(&self, slot: *const AtomicPtr<c_void>, handler: *mut c_void) {
        self.slot.set(slot);
        self.handler.set(handler);
    }

    fn ask(&self) {
        // SAFETY: the slot lives as long as the VM, which is the only one to allocate here.
        if let Some(slot) = unsafe { self.slot.get().as_ref() } {
            slot.store(self.handler.get(), Ordering::Release);
        }
    }
}

/// Give, resize or take back a block, within the limit.
pub unsafe extern "C" fn allocate(memory: *mut c_void, block: *mut c_void, old: usize, new: usize) -> *mut c_void {
    // SAFETY: the VM was made with a pointer to its `Memory`, which lives longer; blocks come from here.
    unsafe {
        let memory = &*memory.cast::<Memory>();
        if new == 0 {
            libc::free(block);
            memory.used.set(memory.used.get().saturating_sub(old));
            return std::ptr::null_mut();
        }
        let after = memory.used.get().saturating_sub(old).saturating_add(new);
        if new > old && after > memory.limit.get() {
            memory.refused.set(true);
            memory.ask();
            return std::ptr::null_mut();
        }
        let fresh = libc::realloc(block, new);
        if fresh.is_null() {
            memory.refused.set(true);
        } else {
            memory.used.set(after);
            if new > old && after > memory.tidy_at.get() {
                memory.ask();
            }
        }
        fresh
    }
}
