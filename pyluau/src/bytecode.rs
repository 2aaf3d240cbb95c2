//! Bytecode in an envelope: forged bytecode can do anything to the process, so only signed bytecode is loaded.

use std::sync::OnceLock;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"pyluau\x00\x01";
const TAG: usize = 32;

/// The key of this process, for bytecode that does not leave it.
fn own_key() -> Option<&'static [u8]> {
    static KEY: OnceLock<Option<[u8; 32]>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = [0u8; 32];
        // SAFETY: the buffer has the length given.
        let failed = unsafe { libc::getentropy(key.as_mut_ptr().cast(), key.len()) } != 0;
        // Without a secret nothing can be signed, so nothing is loaded.
        (!failed).then_some(key)
    });
    key.as_ref().map(<[u8; 32]>::as_slice)
}

fn tag(key: Option<&[u8]>, version: &str, code: &[u8]) -> Option<Hmac<Sha256>> {
    let key = match key {
        Some(key) => key,
        None => own_key()?,
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(MAGIC);
    mac.update(version.as_bytes());
    mac.update(b"\0");
    mac.update(code);
    Some(mac)
}

/// Sign bytecode for `open` with the same key and VM version.
pub fn seal(key: Option<&[u8]>, version: &str, code: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(MAGIC.len() + TAG + code.len());
    sealed.extend_from_slice(MAGIC);
    if let Some(mac) = tag(key, version, code) {
        sealed.extend_from_slice(&mac.finalize().into_bytes());
    }
    sealed.extend_from_slice(code);
    sealed
}

/// The bytecode within, if it was sealed with this key by this version of the VM.
pub fn open<'a>(key: Option<&[u8]>, version: &str, sealed: &'a [u8]) -> Result<&'a [u8]> {
    let rest = sealed
        .strip_prefix(MAGIC.as_slice())
        .ok_or_else(|| Error::Bytecode("not bytecode made by pyluau.compile".to_owned()))?;
    let (given, code) =
        rest.split_at_checked(TAG).ok_or_else(|| Error::Bytecode("bytecode is cut short".to_owned()))?;
    match tag(key, version, code).map(|mac| mac.verify_slice(given)) {
        Some(Ok(())) => Ok(code),
        _ => Err(Error::Bytecode(
            "bytecode was changed, or made with another key or by another version of the VM".to_owned(),
        )),
    }
}

/// Whether this looks like an envelope of ours.
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}
