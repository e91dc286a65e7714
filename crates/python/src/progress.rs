//! Progress from the crates to a Python callable, and Ctrl-C from Python to the crates.

use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use skyhop_scenario::ScenarioError;

use crate::errors::Failure;

/// How often Python is asked and told: often enough for Ctrl-C, rarely enough to cost nothing.
const INTERVAL: Duration = Duration::from_millis(50);

/// A Python callable `(done, total)` that is told of progress, and what was raised meanwhile.
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

    /// Tells Python how far the work is, at most every [`INTERVAL`]; `Break` once it has raised.
    pub(crate) fn tell(&self, done: u64, total: u64) -> ControlFlow<()> {
        if !self.is_due() && done < total {
            return ControlFlow::Continue(());
        }
        self.keep(Python::attach(|py| {
            py.check_signals()?;
            self.callable.call1(py, (done, total)).map(drop)
        }))
    }

    /// Whether the callable or a signal's handler has raised; for engines that ask.
    pub(crate) fn interrupted(&self) -> bool {
        if self.state().raised.is_some() {
            return true;
        }
        if !self.is_due() {
            return false;
        }
        self.keep(Python::attach(|py| py.check_signals())).is_break()
    }

    /// Whether Python has not been asked for a while; it is then, now.
    fn is_due(&self) -> bool {
        let mut state = self.state();
        let due = state.last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if due {
            state.last = Some(Instant::now());
        }
        due
    }

    /// What was raised, if anything.
    pub(crate) fn take_raised(&self) -> Option<PyErr> {
        self.state().raised.take()
    }

    /// What was raised where that has ended the work, else the work's own error.
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

    /// Never held while Python runs, so that two threads cannot wait for each other.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
