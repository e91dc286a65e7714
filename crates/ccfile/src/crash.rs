//! A word before the end where a file of the user's takes the process down.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{SA_NODEFER, SIGBUS, SIGFPE, SIGILL, SIGSEGV, c_int};

/// What is written: made beforehand, since nothing may be made in a signal's handler.
static TEXT: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

const SIGNALS: [c_int; 4] = [SIGSEGV, SIGBUS, SIGFPE, SIGILL];

/// What was done about the signals before; it is done after the word.
static mut BEFORE: [Option<libc::sigaction>; 4] = [None; 4];

/// From now on a crash of this process says that it ran this file.
pub(crate) fn tell_of(file: &str) {
    static LISTENING: Once = Once::new();
    let text = format!(
        "skyhop: the process crashed while it ran {file}: most likely a null pointer or a division by zero there; \
         docs/first-cc.md says how gdb shows the line\n"
    );
    // A shorter text with the longer's length would be read beyond its end.
    LENGTH.store(0, Ordering::SeqCst);
    let text: &'static mut str = text.leak();
    TEXT.store(text.as_mut_ptr(), Ordering::SeqCst);
    LENGTH.store(text.len(), Ordering::SeqCst);
    LISTENING.call_once(|| {
        SIGNALS.iter().enumerate().for_each(|(place, signal)| listen(place, *signal))
    });
}

fn listen(place: usize, signal: c_int) {
    // SAFETY: all zeros are a value of both; `BEFORE` is written here alone, once, before the handler can run.
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

/// Says the word and lets what would have happened without it happen: the instruction that crashed is tried again.
extern "C" fn on_crash(signal: c_int) {
    let length = LENGTH.load(Ordering::SeqCst);
    // SAFETY: write(2), sigaction(2) and raise(3) may be called here; the text is never freed.
    unsafe {
        libc::write(libc::STDERR_FILENO, TEXT.load(Ordering::SeqCst).cast(), length);
        let place = SIGNALS.iter().position(|known| *known == signal);
        let before = place.and_then(|place| BEFORE[place]);
        if let Some(before) = before {
            libc::sigaction(signal, &raw const before, ptr::null_mut());
        }
    }
}
