//! Threads that work on something until it ends.

use std::thread::{self, JoinHandle};

use crate::error::{Context, HostError};

/// A thread at work.
pub type Worker<T> = JoinHandle<Result<T, HostError>>;

/// Starts one.
///
/// # Errors
/// The system has no room for another.
pub fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<Worker<T>, HostError> {
    thread::Builder::new().name(name).spawn(work).context("cannot start a thread")
}

/// Waits for its end.
///
/// # Errors
/// Its own, or that it panicked.
pub fn join<T>(worker: Worker<T>) -> Result<T, HostError> {
    worker.join().unwrap_or_else(|_| {
        let action = "cannot go on".to_owned();
        Err(HostError::System { action, reason: "a thread panicked".to_owned() })
    })
}
