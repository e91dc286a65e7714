//! Crash message that names the user's file which was running.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{SA_NODEFER, SIGBUS, SIGFPE, SIGILL, SIGSEGV, c_int};

/// Message, formatted in advance because a signal handler must not allocate.
static TEXT: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

const SIGNALS: [c_int; 4] = [SIGSEGV, SIGBUS, SIGFPE, SIGILL];

/// Previous signal actions, restored after the message.
static mut BEFORE: [Option<libc::sigaction>; 4] = [None; 4];

/// Install the crash message for this file, in place of the message for an earlier file.
pub(crate) fn report_crashes_in(file: &str) {
    static INSTALLED: Once = Once::new();
    let text = format!(
        "skyhop: the process crashed while it ran {file}: most likely a null pointer or a division by zero there; \
         skyhop docs first-cc says how gdb shows the line\n"
    );
    // Reset the length first: a shorter text with the old length would be read beyond its end.
    LENGTH.store(0, Ordering::SeqCst);
    let text: &'static mut str = text.leak();
    TEXT.store(text.as_mut_ptr(), Ordering::SeqCst);
    LENGTH.store(text.len(), Ordering::SeqCst);
    INSTALLED.call_once(|| {
        SIGNALS.iter().enumerate().for_each(|(place, signal)| install(place, *signal))
    });
}

fn install(place: usize, signal: c_int) {
    // SAFETY: all zeros are a valid value of both structs; `BEFORE` is written only here, once, before the handler runs.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_crash as *const () as usize;
        action.sa_flags = SA_NODEFER;
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &raw mut before) == 0 {
            BEFORE[place] = Some(before);
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Write the message and restore the previous action; the crashing instruction then runs again.
extern "C" fn on_crash(signal: c_int) {
    let length = LENGTH.load(Ordering::SeqCst);
    // SAFETY: write(2) and sigaction(2) are async-signal-safe; the text is never freed.
    unsafe {
        libc::write(libc::STDERR_FILENO, TEXT.load(Ordering::SeqCst).cast(), length);
        let place = SIGNALS.iter().position(|known| *known == signal);
        let before = place.and_then(|place| BEFORE[place]);
        if let Some(before) = before {
            libc::sigaction(signal, &raw const before, ptr::null_mut());
        }
    }
}
