//! The engines, by name, and runs of them.

use std::time::Instant;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use skyhop_engine::{Control, Ended, Engine, Mock};
use skyhop_host::Program;
use skyhop_live::{Guest, LiveEngine, LiveOptions};
use skyhop_record::{Sink, SummaryOnly};
use skyhop_sim::Simulator;
use skyhop_units::Duration;

use crate::errors::{Fallible, input_error};
use crate::experiment::{PyExperiment, PyRunDirectory};
use crate::progress::PyProgress;
use crate::python_cc;

/// What a run may be told beside its scenario: each engine takes what is for it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    client: Option<Vec<String>>,
    server: Option<String>,
    default_cc: Option<String>,
    internet: bool,
    guest: Option<GuestOptions>,
}

/// The kernel in virtual time that a run is made in.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GuestOptions {
    name: String,
    source: String,
    digest: String,
    hz: u32,
    options: Vec<String>,
}

impl Options {
    fn live(self) -> LiveOptions {
        let Self { client, server, default_cc, internet, guest } = self;
        let program = client.map(|client| Program { client, server });
        let usual = LiveOptions::default();
        let default_cc = default_cc.unwrap_or(usual.default_cc);
        let guest = guest.map(|GuestOptions { name, source, digest, hz, options }| Guest {
            name,
            source,
            digest,
            hz,
            options,
        });
        LiveOptions { program, default_cc, internet, guest, ..usual }
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
        python_cc::has_failed() || self.progress.interrupted()
    }

    fn wall_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// When a run ended (s), whether it was interrupted, and the exit status of its program.
type Outcome = (f64, bool, Option<i32>);

/// Runs an experiment with the engine called `name` into a reserved directory.
#[pyfunction]
pub(crate) fn run_engine(
    py: Python<'_>,
    name: &str,
    experiment: &PyExperiment,
    directory: &PyRunDirectory,
    options: Options,
    progress: Py<PyAny>,
) -> Fallible<Outcome> {
    let (engine, started) = (engine(name, options)?, Instant::now());
    let mut writer = directory.writer(experiment)?;
    run(py, &*engine, experiment, &mut writer, (progress, started))
}

/// Runs an experiment likewise, but leaves nothing: returns the summary as JSON, too, which is null where the
/// run has none.
#[pyfunction]
pub(crate) fn run_for_summary(
    py: Python<'_>,
    name: &str,
    experiment: &PyExperiment,
    options: Options,
    progress: Py<PyAny>,
) -> Fallible<(Outcome, String)> {
    let (engine, started) = (engine(name, options)?, Instant::now());
    let mut kept = SummaryOnly::default();
    let outcome = run(py, &*engine, experiment, &mut kept, (progress, started))?;
    Ok((outcome, serde_json::to_string(&kept.summary)?))
}

fn run(
    py: Python<'_>,
    engine: &(dyn Engine + Send + Sync),
    experiment: &PyExperiment,
    sink: &mut (dyn Sink + Send),
    (progress, started): (Py<PyAny>, Instant),
) -> Fallible<Outcome> {
    let progress = PyProgress::new(progress);
    let mut control = PyControl { progress: &progress, started };
    let mut sink = python_cc::Guarded(sink);
    let ended = py.detach(|| engine.run(&experiment.experiment, &mut sink, &mut control));
    let stopped = python_cc::take_failure()?;
    let Ended { at, interrupted, program_status } = ended?;
    match progress.take_raised() {
        // Ctrl-C ends a run early; anything else that the callable raised is the caller's error.
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error.into()),
        _ => Ok((at.as_secs_f64(), interrupted || stopped, program_status)),
    }
}
