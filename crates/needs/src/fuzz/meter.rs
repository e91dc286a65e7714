//! Allocator that measures the peak memory of a piece of work; every test that uses this crate allocates through it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed, and their maximum since the last measurement began.
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static METER: Meter = Meter;

struct Meter;

/// Call `work` and return its result and its peak of allocated bytes above those before.
pub(super) fn peak_memory<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = ALLOCATED.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get() - before)
}

fn count(bytes: isize) {
    // The thread-local counters are gone while a thread ends.
    let _ = ALLOCATED.try_with(|allocated| {
        allocated.set(allocated.get() + bytes);
        let _ = PEAK.try_with(|most| most.set(most.get().max(allocated.get())));
    });
}

// SAFETY: all calls are passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller fulfils the contract of this function, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller fulfils the contract of this function, which is that of the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller fulfils the contract of this function, which is that of the system's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller fulfils the contract of this function, which is that of the system's.
        unsafe { System.realloc(place, layout, size) }
    }
}
