//! Progress reports from the crates to a Python callable, and Ctrl-C from Python to the crates.

use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use skyhop_scenario::ScenarioError;

use crate::errors::Failure;

/// Shortest interval between calls into Python: short enough for a prompt response to Ctrl-C, long
/// enough for the cost to be negligible.
const INTERVAL: Duration = Duration::from_millis(50);

/// Python callable that gets the progress as `(done, total)`, and the exception that it or a signal
/// handler has raised.
pub(crate) struct PyProgress {
    callable: Py<PyAny>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<Instant>,
    raised: Option<PyErr>,
}

impl PyProgress {
    pub(crate) fn new(callable: Py<PyAny>) -> Self {
        Self { callable, state: Mutex::default() }
    }

    /// Report progress to Python, at most every [`INTERVAL`]; return `Break` once Python has raised.
    pub(crate) fn report(&self, done: u64, total: u64) -> ControlFlow<()> {
        if !self.is_due() && done < total {
            return ControlFlow::Continue(());
        }
        self.keep(Python::attach(|py| {
            py.check_signals()?;
            self.callable.call1(py, (done, total)).map(drop)
        }))
    }

    /// Whether the callable or a signal handler has raised an exception; for engines that poll.
    pub(crate) fn interrupted(&self) -> bool {
        if self.state().raised.is_some() {
            return true;
        }
        if !self.is_due() {
            return false;
        }
        self.keep(Python::attach(|py| py.check_signals())).is_break()
    }

    /// Whether [`INTERVAL`] has passed since the last call into Python; starts a new interval if so.
    fn is_due(&self) -> bool {
        let mut state = self.state();
        let due = state.last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if due {
            state.last = Some(Instant::now());
        }
        due
    }

    /// Take the raised exception, if there is one.
    pub(crate) fn take_raised(&self) -> Option<PyErr> {
        self.state().raised.take()
    }

    /// Raised exception if it interrupted the work, else the work's own error.
    pub(crate) fn failure(&self, error: ScenarioError) -> Failure {
        let raised = self.take_raised().filter(|_| matches!(error, ScenarioError::Interrupted));
        raised.map_or_else(|| error.into(), Failure::from)
    }

    fn keep(&self, result: PyResult<()>) -> ControlFlow<()> {
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.state().raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Lock the state; the lock must not be held while Python runs, or two threads could deadlock over the GIL.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
