//! Named threads that return a result.

use std::thread::{self, JoinHandle};

use crate::error::{Context, HostError};

/// Handle of a thread that returns `T` or an error.
pub type Worker<T> = JoinHandle<Result<T, HostError>>;

/// Start a thread with this name.
///
/// # Errors
/// The system cannot create another thread.
pub fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<Worker<T>, HostError> {
    thread::Builder::new().name(name).spawn(work).context("cannot start a thread")
}

/// Wait for a thread to end; return its result.
///
/// # Errors
/// The thread returned an error or panicked.
pub fn join<T>(worker: Worker<T>) -> Result<T, HostError> {
    worker.join().unwrap_or_else(|_| {
        let action = "cannot continue the run".to_owned();
        Err(HostError::System { action, reason: "a thread panicked".to_owned() })
    })
}
