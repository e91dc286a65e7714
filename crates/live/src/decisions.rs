//! Decides for a run's connections whose congestion control is a policy, beside the run, in a thread of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use skyhop_cc::bindings::SKYHOP_LAST_REPORT;
use skyhop_cc::{Decider as _, Decision, Outputs};
use skyhop_host::error::{Context, HostError};
use skyhop_kernel::{DecisionMaps, KernelError, ReportReader};
use skyhop_policy::{Pilot, Policy};

/// How long nobody looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

/// Ends with what was said, and with what it failed of.
type Thread = JoinHandle<(Outputs, Option<KernelError>)>;

/// Whoever decides for the connections of a registered module; it stops as this goes.
#[derive(Debug)]
pub(crate) struct DecisionServer {
    title: String,
    stop: Arc<AtomicBool>,
    thread: Option<Thread>,
}

impl DecisionServer {
    /// Begins to decide.
    pub(crate) fn start(maps: DecisionMaps, policy: &Policy) -> Result<Self, HostError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (over, policy) = (Arc::clone(&stop), policy.clone());
        let title = policy.card.title.clone();
        let work = move || {
            let mut pilots = Pilots { policy, of: HashMap::new(), gone: Outputs::default() };
            let served = maps.read().and_then(|reader| serve(&reader, &mut pilots, &over));
            (pilots.outputs(), served.err())
        };
        let thread = thread::Builder::new().name("policy".to_owned()).spawn(work);
        let thread = Some(thread.context("cannot start a thread")?);
        Ok(Self { title, stop, thread })
    }

    /// Stops, and says what to know of it.
    pub(crate) fn join(mut self) -> Vec<String> {
        let ended = self.end().map_or(Ok((Outputs::default(), None)), JoinHandle::join);
        let (outputs, failure) = match ended {
            Ok((outputs, error)) => (outputs, error.map(|error| error.to_string())),
            Err(_) => (Outputs::default(), Some("a thread has panicked".to_owned())),
        };
        let title = &self.title;
        let failure = failure.map(|error| format!("{title} decided no more: {error}"));
        failure.into_iter().chain(outputs.warning(title)).collect()
    }

    fn end(&mut self) -> Option<Thread> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()
    }
}

/// A run that ends early asks nobody what they have to say.
impl Drop for DecisionServer {
    fn drop(&mut self) {
        if let Some(thread) = self.end() {
            let _ = thread.join();
        }
    }
}

/// The policy at work for each connection.
struct Pilots {
    policy: Policy,
    of: HashMap<u64, Pilot>,
    /// What was said to connections that have ended.
    gone: Outputs,
}

impl Pilots {
    fn of(&mut self, connection: u64) -> &mut Pilot {
        self.of.entry(connection).or_insert_with(|| Pilot::new(&self.policy))
    }

    fn forget(&mut self, connection: u64) {
        let gone = self.of.remove(&connection).map(|pilot| pilot.outputs());
        self.gone = self.gone.plus(gone.unwrap_or_default());
    }

    fn outputs(&self) -> Outputs {
        self.of.values().map(Pilot::outputs).fold(self.gone, Outputs::plus)
    }
}

/// A server that fails decides no more: its connections fall back, and say so.
fn serve(reader: &ReportReader, pilots: &mut Pilots, over: &AtomicBool) -> Result<(), KernelError> {
    while !over.load(Ordering::Relaxed) {
        for report in reader.wait(LOOK)? {
            if report.flags & SKYHOP_LAST_REPORT != 0 {
                pilots.forget(report.id);
                reader.forget(report.id)?;
                continue;
            }
            if let Some(decision) = pilots.of(report.id).decide(&report) {
                let decision = Decision { report_ns: report.at_ns, ..decision };
                reader.decide(report.id, &decision)?;
            }
        }
    }
    Ok(())
}
