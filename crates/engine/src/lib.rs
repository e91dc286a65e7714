//! What every engine is asked for: a name, whether it can do what a scenario asks for, and the run.
//!
//! An engine measures; what becomes of that is the [recorder](skyhop_record::Recorder)'s. Each engine is a crate of
//! its own, passes [`conformance`], and is known to the command line by its line in
//! `crates/python/src/engines.rs`. [`Mock`] makes its numbers up, for tests of whatever reads runs.

pub mod conformance;
mod forewarned;
mod mock;

use std::error::Error;

use skyhop_experiment::Experiment;
use skyhop_record::{FileError, RunData, Sink};
use skyhop_units::{Duration, Instant};
use thiserror::Error as ThisError;

pub use forewarned::warnings;
pub use mock::Mock;

/// Something that runs experiments.
pub trait Engine {
    /// Its name in run.json and study files.
    fn name(&self) -> &'static str;

    /// Whether it can do all that the experiment asks for.
    ///
    /// # Errors
    /// The scenario's key that it cannot do, why, and the way out.
    fn check(&self, experiment: &Experiment) -> Result<(), Unsupported>;

    /// Runs the experiment, and hands what it measures to `sink` as it comes. Interrupted, it ends
    /// early and what was measured until then counts.
    ///
    /// # Errors
    /// What [`Engine::check`] says, what this machine does not allow, and what the sink refuses.
    fn run(
        &self,
        experiment: &Experiment,
        sink: &mut dyn Sink,
        control: &mut dyn Control,
    ) -> Result<Ended, EngineError>;
}

/// How the caller follows a run and ends it early.
pub trait Control {
    /// How far the run is, in its own time. Called a few times per second or more often.
    fn progress(&mut self, elapsed: Duration, total: Duration);

    /// Asked about as often; once it returns true the run ends and what was measured counts.
    fn interrupted(&mut self) -> bool;

    /// How long the run has taken by the wall clock, in seconds, for engines that read none; 0 where
    /// nobody looks.
    fn wall_s(&self) -> f64 {
        0.0
    }
}

/// Lets a run go on to its end, and does not look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unattended;

impl Control for Unattended {
    fn progress(&mut self, _elapsed: Duration, _total: Duration) {}

    fn interrupted(&mut self) -> bool {
        false
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When, in its own time.
    pub at: Instant,
    /// Whether the caller ended it before its time.
    pub interrupted: bool,
    /// The exit status of the program that made the traffic; `None` without one.
    pub program_status: Option<i32>,
}

/// What an experiment asks for and an engine cannot do.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("{key}: {what}")]
pub struct Unsupported {
    /// The scenario's key.
    pub key: String,
    /// Why it cannot be done, and the way out.
    pub what: String,
}

impl Unsupported {
    /// `key` cannot be done, for the reason `what`.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into() }
    }
}

/// Why there is no run, or only a part of one.
#[derive(Debug, ThisError)]
pub enum EngineError {
    /// The engine cannot do what the experiment asks for.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// What was measured could not be written or passed on.
    #[error(transparent)]
    Record(#[from] FileError),
    /// Something of the engine's own.
    #[error("{reason}")]
    Failed {
        /// What.
        reason: Box<dyn Error + Send + Sync>,
        /// Whether what was asked for was wrong, rather than the attempt to do it.
        is_input: bool,
    },
}

impl EngineError {
    /// Whether what was asked for was wrong, rather than the attempt to do it.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Unsupported(_) => true,
            Self::Record(error) => error.is_input(),
            Self::Failed { is_input, .. } => *is_input,
        }
    }
}

/// A whole run in memory, without anybody to watch it.
///
/// # Errors
/// As [`Engine::run`].
pub fn run_in_memory(engine: &dyn Engine, experiment: &Experiment) -> Result<RunData, EngineError> {
    let mut data = RunData::default();
    engine.run(experiment, &mut data, &mut Unattended)?;
    Ok(data)
}
