//! Structs of the header as bytes, as kernel modules and the loader exchange them in BPF maps or through a
//! module's file.

use crate::bindings::{
    Announcement, Decided, Decision, Handover, Phase, Registration, Report, SKYHOP_MOST_PARAMS,
    SignalKey, Told,
};

/// Struct that may be stored in a map, or written to a file.
///
/// # Safety
/// The struct consists of integers only, without padding between them.
pub unsafe trait MapValue: Copy {
    /// Return the bytes that the module sees.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the struct has no padding, so that all its bytes are initialised.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    /// Parse the bytes that a module wrote; return `None` if their number is wrong, as from another version.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let is_whole = bytes.len() == size_of::<Self>();
        // SAFETY: `bytes` is as long as the struct, and integers may have any bytes.
        is_whole.then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

// SAFETY: integers only, and the assertion below shows that there is no padding.
unsafe impl MapValue for SignalKey {}
const _: () = assert!(size_of::<SignalKey>() == 4 + 8 + 4);

// SAFETY: integers only, and the assertion below shows that there is no padding.
unsafe impl MapValue for Handover {}
const _: () = assert!(size_of::<Handover>() == 3 * 8 + 2 * 4);

// SAFETY: integers only, and the assertion below shows that there is no padding.
unsafe impl MapValue for Told {}
const _: () = assert!(size_of::<Phase>() == 3 * 8);
const _: () = assert!(size_of::<Told>() == 8 + size_of::<Phase>() + 2 * 2 + 4);

// SAFETY: integers only, and the assertion below shows that there is no padding.
unsafe impl MapValue for Registration {}
const _: () = assert!(size_of::<Registration>() == 16 + 8 + 8 * SKYHOP_MOST_PARAMS as usize);

// SAFETY: integers only, and the assertion below shows that there is no padding.
unsafe impl MapValue for Announcement {}
const _: () = assert!(size_of::<Announcement>() == size_of::<SignalKey>() + size_of::<Handover>());

// SAFETY: integers only, and the assertion below shows that there is no padding.
unsafe impl MapValue for Report {}
const _: () = assert!(size_of::<Report>() == 9 * 8 + size_of::<Handover>() + 28 * 4 + 2 * 2 + 4);

// SAFETY: integers only, and the assertion below shows that there is no padding.
unsafe impl MapValue for Decision {}
const _: () = assert!(size_of::<Decision>() == 2 * 8 + 2 * 4);

// SAFETY: integers only, and the assertion below shows that there is no padding.
unsafe impl MapValue for Decided {}
const _: () = assert!(size_of::<Decided>() == 8 + size_of::<Decision>());
