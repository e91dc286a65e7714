//! Interface of all engines: a name, a check whether the engine supports an experiment, and the run.
//!
//! An engine measures; the [recorder](skyhop_record::Recorder) turns measurements into results. Each engine is a
//! crate of its own, passes [`conformance`], and is known to the command line by its line in
//! `crates/python/src/engines.rs`. [`Mock`] invents its numbers, for tests of code that reads runs.

pub mod conformance;
mod mock;
mod warnings;

use std::error::Error;

use skyhop_experiment::Experiment;
use skyhop_record::{FileError, RunData, Sink};
use skyhop_units::{Duration, Instant};
use thiserror::Error as ThisError;

pub use mock::Mock;
pub use warnings::{finds_none, no_announcements, uses_announcements, warnings};

/// An implementation that runs experiments, such as the simulator.
pub trait Engine {
    /// Name of the engine in run.json and study files.
    fn name(&self) -> &'static str;

    /// Check whether the engine supports everything in the experiment.
    ///
    /// # Errors
    /// The scenario's key that the engine does not support, why, and what to do instead.
    fn check(&self, experiment: &Experiment) -> Result<(), Unsupported>;

    /// Run the experiment and pass measurements to `sink` as they arise. An interrupted run ends early and keeps the
    /// measurements made until then.
    ///
    /// # Errors
    /// The errors of [`Engine::check`], missing permissions or programs of this machine, and errors of the sink.
    fn run(
        &self,
        experiment: &Experiment,
        sink: &mut dyn Sink,
        control: &mut dyn Control,
    ) -> Result<Ended, EngineError>;
}

/// Callbacks by which the caller follows a run and ends it early.
pub trait Control {
    /// Report progress in the run's own time. Called a few times per second or more often.
    fn progress(&mut self, elapsed: Duration, total: Duration);

    /// Whether to end the run now; polled about as often as progress is reported. Measurements made so far are kept.
    fn interrupted(&mut self) -> bool;

    /// Wall-clock time since the run began, in seconds, for engines that read no clock; 0 if the caller does not
    /// measure it.
    fn wall_s(&self) -> f64 {
        0.0
    }
}

/// Control that ignores progress and never interrupts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unattended;

impl Control for Unattended {
    fn progress(&mut self, _elapsed: Duration, _total: Duration) {}

    fn interrupted(&mut self) -> bool {
        false
    }
}

/// Outcome of a run: its end, and whether it ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// End of the run, in its own time.
    pub at: Instant,
    /// Whether the caller ended the run early.
    pub interrupted: bool,
    /// Exit status of the program that made the traffic; `None` without one.
    pub program_status: Option<i32>,
}

/// Part of an experiment that an engine does not support.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("{key}: {what}")]
pub struct Unsupported {
    /// Key of the scenario that asks for it.
    pub key: String,
    /// Reason, and what to do instead.
    pub what: String,
}

impl Unsupported {
    /// Create the error about `key`, with the reason `what`.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into() }
    }
}

/// Error that prevented a run or ended it early.
#[derive(Debug, ThisError)]
pub enum EngineError {
    /// The engine does not support the experiment.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The results could not be written or passed on.
    #[error(transparent)]
    Record(#[from] FileError),
    /// Error of the engine itself.
    #[error("{reason}")]
    Failed {
        /// The error as the engine reported it.
        reason: Box<dyn Error + Send + Sync>,
        /// Whether the input was wrong, rather than its execution failed.
        is_input: bool,
    },
}

impl EngineError {
    /// Whether the input was wrong, rather than its execution failed.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Unsupported(_) => true,
            Self::Record(error) => error.is_input(),
            Self::Failed { is_input, .. } => *is_input,
        }
    }
}

/// Run a whole experiment in memory, without control.
///
/// # Errors
/// Those of [`Engine::run`].
pub fn run_in_memory(engine: &dyn Engine, experiment: &Experiment) -> Result<RunData, EngineError> {
    let mut data = RunData::default();
    engine.run(experiment, &mut data, &mut Unattended)?;
    Ok(data)
}
