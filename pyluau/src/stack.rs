//! How much of the native stack a thread has left: each call across the border takes some kilobytes of it.

/// What a host function and the script it calls in turn may need.
const NEEDED: usize = 128 << 10;

/// The lowest address of this thread's stack; 0 where that is not known.
#[cfg(target_os = "linux")]
fn lowest() -> usize {
    thread_local! { static LOWEST: usize = find_lowest() }
    LOWEST.with(|lowest| *lowest)
}

#[cfg(target_os = "linux")]
fn find_lowest() -> usize {
    let (mut address, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are filled by the first call, and freed if it did not fail.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0;
        }
        libc::pthread_attr_getstack(&attributes, &mut address, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
    }
    address as usize
}

#[cfg(not(target_os = "linux"))]
fn lowest() -> usize {
    0
}

/// Whether there is room for one more call of the host.
pub fn has_room() -> bool {
    let here = 0u8;
    (&raw const here as usize).saturating_sub(lowest()) > NEEDED
}
