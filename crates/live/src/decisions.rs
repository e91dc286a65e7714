//! Decides for a run's connections whose congestion control is a policy, beside the run, in a thread of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use skyhop_cc::bindings::SKYHOP_LAST_REPORT;
use skyhop_cc::{Decider as _, Decision};
use skyhop_host::error::{Context, HostError};
use skyhop_kernel::{DecisionMaps, KernelError, ReportReader};
use skyhop_policy::{Counts, Pilot, Policy};

/// How long nobody looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

/// Whoever decides for the connections of a registered module; it stops as this goes.
#[derive(Debug)]
pub(crate) struct DecisionServer {
    title: String,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<Result<(), KernelError>>>,
}

impl DecisionServer {
    /// Begins to decide.
    pub(crate) fn start(maps: DecisionMaps, policy: &Policy) -> Result<Self, HostError> {
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let (over, counted, policy) = (Arc::clone(&stop), Arc::clone(&counts), policy.clone());
        let title = policy.card.title.clone();
        let work = move || serve(&maps.read()?, &policy, &counted, &over);
        let thread = thread::Builder::new().name("policy".to_owned()).spawn(work);
        let thread = Some(thread.context("cannot start a thread")?);
        Ok(Self { title, stop, counts, thread })
    }

    /// Stops, and says what to know of it.
    pub(crate) fn join(mut self) -> Vec<String> {
        let ended = self.end().map_or(Ok(Ok(())), JoinHandle::join);
        let failure = match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("a thread has panicked".to_owned()),
        };
        let title = &self.title;
        let failure = failure.map(|error| format!("{title} decided no more: {error}"));
        failure.into_iter().chain(self.counts.warning(title)).collect()
    }

    fn end(&mut self) -> Option<JoinHandle<Result<(), KernelError>>> {
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

/// A server that fails decides no more: its connections fall back, and say so.
fn serve(
    reader: &ReportReader,
    policy: &Policy,
    counts: &Arc<Counts>,
    over: &AtomicBool,
) -> Result<(), KernelError> {
    let mut pilots: HashMap<u64, Pilot> = HashMap::new();
    while !over.load(Ordering::Relaxed) {
        for report in reader.wait(LOOK)? {
            if report.flags & SKYHOP_LAST_REPORT != 0 {
                pilots.remove(&report.id);
                reader.forget(report.id)?;
                continue;
            }
            let new = || Pilot::new(policy, Arc::clone(counts));
            let pilot = pilots.entry(report.id).or_insert_with(new);
            if let Some(decision) = pilot.decide(&report) {
                let decision = Decision { report_ns: report.at_ns, ..decision };
                reader.decide(report.id, &decision)?;
            }
        }
    }
    Ok(())
}
