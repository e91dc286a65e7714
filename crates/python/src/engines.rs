//! The engines, by name, and runs of them.

use std::time::Instant;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use skyhop_engine::{Control, Ended, Engine, Mock};
use skyhop_host::Program;
use skyhop_live::{LiveEngine, LiveOptions};
use skyhop_sim::Simulator;
use skyhop_units::Duration;

use crate::errors::{Fallible, input_error};
use crate::experiment::{PyExperiment, PyRunDirectory};
use crate::progress::PyProgress;

/// What a run may be told beside its scenario: each engine takes what is for it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    client: Option<Vec<String>>,
    server: Option<String>,
    default_cc: Option<String>,
}

impl Options {
    fn live(self) -> LiveOptions {
        let Self { client, server, default_cc } = self;
        let program = client.map(|client| Program { client, server });
        let usual = LiveOptions::default();
        LiveOptions { program, default_cc: default_cc.unwrap_or(usual.default_cc), ..usual }
    }
}

/// Every engine: its name, and how it is made.
fn engine(name: &str, options: Options) -> Fallible<Box<dyn Engine + Send + Sync>> {
    match name {
        "sim" => Ok(Box::new(Simulator)),
        "live" => Ok(Box::new(LiveEngine { options: options.live() })),
        "mock" => Ok(Box::new(Mock)),
        other => Err(input_error(&format!("there is no engine \"{other}\"; expected sim or live"))),
    }
}

struct PyControl<'p> {
    progress: &'p PyProgress,
    started: Instant,
}

impl Control for PyControl<'_> {
    fn progress(&mut self, elapsed: Duration, total: Duration) {
        // What the callable raises is kept, and answers `interrupted` next.
        let _: std::ops::ControlFlow<()> = self.progress.tell(elapsed.as_nanos(), total.as_nanos());
    }

    fn interrupted(&mut self) -> bool {
        self.progress.interrupted()
    }

    fn wall_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Runs an experiment with the engine called `name` into a reserved directory; returns when it ended (s),
/// whether it was interrupted, and the exit status of its program.
#[pyfunction]
pub(crate) fn run_engine(
    py: Python<'_>,
    name: &str,
    experiment: &PyExperiment,
    directory: &PyRunDirectory,
    options: Options,
    progress: Py<PyAny>,
) -> Fallible<(f64, bool, Option<i32>)> {
    let engine = engine(name, options)?;
    let progress = PyProgress::new(progress);
    let mut control = PyControl { progress: &progress, started: Instant::now() };
    let mut writer = directory.writer(&experiment.0)?;
    let result = py.detach(|| engine.run(&experiment.0, &mut writer, &mut control));
    drop(writer);
    let Ended { at, interrupted, program_status } = result?;
    match progress.take_raised() {
        // Ctrl-C ends a run early; anything else that the callable raised is the caller's error.
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error.into()),
        _ => Ok((at.as_secs_f64(), interrupted, program_status)),
    }
}
