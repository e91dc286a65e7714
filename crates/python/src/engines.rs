//! Python bindings that run experiments with an engine.

use std::path::PathBuf;
use std::time::Instant;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use skyhop_engine::{Control, Ended, Engine, Mock};
use skyhop_host::Program;
use skyhop_live::{Guest, LiveEngine, LiveOptions};
use skyhop_record::{Capture, Capturing, Sink, SummaryOnly};
use skyhop_sim::Simulator;
use skyhop_units::{Duration, QuantityError, UtcInstant};

use crate::errors::{Fallible, input_error};
use crate::experiment::{PyExperiment, PyRunDirectory};
use crate::progress::PyProgress;
use crate::python_cc;

/// Options of a run in addition to its scenario; each engine uses only some of them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    client: Option<Vec<String>>,
    server: Option<String>,
    default_cc: Option<String>,
    internet: bool,
    guest: Option<GuestOptions>,
    capture: Option<CaptureOptions>,
}

/// Capture of a run's packets.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct CaptureOptions {
    file: PathBuf,
    /// Ids of flows; empty for all.
    flows: Vec<u32>,
    file_size: Option<String>,
    files: Option<u32>,
}

/// Guest kernel, in virtual time, on which a run is executed.
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
        let Self { client, server, default_cc, internet, guest, capture: _ } = self;
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

impl CaptureOptions {
    /// Capture of an experiment's packets.
    fn of(&self, experiment: &PyExperiment) -> Fallible<Capture> {
        let Self { file, flows, file_size, files } = self;
        let experiment = &experiment.experiment;
        let known: Vec<u32> = experiment.flows.iter().map(|flow| flow.id).collect();
        if let Some(unknown) = flows.iter().find(|id| !known.contains(id)) {
            let what = format!("there is no flow {unknown} to capture; flows are numbered from 0");
            return Err(input_error(&what));
        }
        let wrong = |error: QuantityError| input_error(&format!("size of capture files: {error}"));
        let file_bytes = file_size.as_deref().map(str::parse).transpose().map_err(wrong)?;
        let start = experiment.path().header.start.unwrap_or(UtcInstant::from_unix_nanos(0));
        let flows = (!flows.is_empty()).then(|| flows.clone());
        Ok(Capture { file: file.clone(), flows, file_bytes, files: *files, start })
    }
}

/// Create the engine with this name.
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
        // If the callable raises an exception, it is stored, and `interrupted` returns true from then on.
        let _: std::ops::ControlFlow<()> =
            self.progress.report(elapsed.as_nanos(), total.as_nanos());
    }

    fn interrupted(&mut self) -> bool {
        python_cc::has_failed() || self.progress.interrupted()
    }

    fn wall_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Outcome of a run: end time (s), whether it was interrupted, and the exit status of its program.
type Outcome = (f64, bool, Option<i32>);

/// Run an experiment with the engine `name` and write the run to a reserved directory.
#[pyfunction]
pub(crate) fn run_engine(
    py: Python<'_>,
    name: &str,
    experiment: &PyExperiment,
    directory: &PyRunDirectory,
    options: Options,
    progress: Py<PyAny>,
) -> Fallible<Outcome> {
    let capture = options.capture.as_ref().map(|capture| capture.of(experiment)).transpose()?;
    let (engine, started) = (engine(name, options)?, Instant::now());
    let mut writer = directory.writer(experiment)?;
    match capture {
        None => run(py, &*engine, experiment, &mut writer, (progress, started)),
        Some(capture) => {
            let mut sink = Capturing::new(&mut writer, capture);
            run(py, &*engine, experiment, &mut sink, (progress, started))
        }
    }
}

/// Run an experiment with the engine `name` without writing files. Return the outcome, and the summary as JSON, which
/// is null if the run has no summary.
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
        // Ctrl-C ends a run early, which is not an error. Any other exception of the callable is
        // raised to the caller.
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error.into()),
        _ => Ok((at.as_secs_f64(), interrupted || stopped, program_status)),
    }
}
