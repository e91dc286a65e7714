//! Decides for the connections of a registered module, in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use skyhop_cc::Module;
use skyhop_host::error::{Context, HostError};
use skyhop_kernel::{DecisionMaps, Held, KernelError, ReportReader};
use skyhop_model::POLICY_CC;
use skyhop_policy::Policy;

use crate::pilots::{Answer, Latencies, Pilots, Served};

/// How long nobody looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);

/// Registers `cc/policy.c` with these parameters, under a name of its own or the one that is given, and begins to decide
/// for its connections. It is registered as long as what is returned first lives, and where that is a module's file, as
/// long as anything does that was made of it.
///
/// # Errors
/// A policy that is no network, a name that is taken, wrong parameters, or what this machine or this build of skyhop lacks.
pub fn hold_policy(
    card: &str,
    policy: &Policy,
    parameters: &[(String, String)],
    name: Option<&str>,
) -> Result<(Held, DecisionServer), HostError> {
    if !policy.runs_anywhere() {
        return Err(HostError::Unsupported(format!(
            "{card}: a policy in Python decides in the simulator alone (skyhop sim): for live runs and \
             the kernel's connections give its card a network in ONNX"
        )));
    }
    let refused = |error: KernelError| HostError::of_congestion_control(card, &error);
    let module = Module::find(POLICY_CC).map_err(|error| refused(error.into()))?;
    let given: Vec<(&str, &str)> =
        parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let held = match name {
        Some(name) => skyhop_kernel::hold_as(module, &given, name),
        None => skyhop_kernel::hold(module, &given),
    };
    let held = held.map_err(refused)?;
    let maps = held.decisions().map_err(refused)?.ok_or_else(|| {
        HostError::Unsupported(format!("{card}: nobody can decide for its connections here"))
    })?;
    let server = DecisionServer::start(maps, policy)?;
    Ok((held, server))
}

/// Whoever decides for the connections of a registered module; it stops as this goes.
#[derive(Debug)]
pub struct DecisionServer {
    title: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Served>>,
}

impl DecisionServer {
    /// Begins to decide.
    fn start(maps: DecisionMaps, policy: &Policy) -> Result<Self, HostError> {
        let stop = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&stop);
        let (title, mut latencies) = (policy.card.title.clone(), Latencies::new()?);
        let mut pilots = Pilots::new(policy.clone());
        let work = move || {
            let served =
                maps.read().and_then(|reader| decide(&reader, &mut pilots, &mut latencies, &over));
            let failure = served.err().map(|error| error.to_string());
            let (connections, outputs) = (pilots.connections(), pilots.outputs());
            Served { connections, outputs, latencies, failure }
        };
        let thread = thread::Builder::new().name("policy".to_owned()).spawn(work);
        let thread = Some(thread.context("cannot start a thread")?);
        Ok(Self { title, stop, thread })
    }

    /// Whether it decides no more, though nobody has stopped it.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it, and says what was decided.
    ///
    /// # Errors
    /// The thread has panicked.
    pub fn join(mut self) -> Result<Served, HostError> {
        let ended = self.end().map(JoinHandle::join).and_then(Result::ok);
        ended.ok_or("a thread has panicked").context(&format!("{} decided no more", self.title))
    }

    /// Stops it, and says what to know of it.
    pub fn warnings(self) -> Vec<String> {
        let title = self.title.clone();
        match self.join() {
            Ok(served) => {
                let failure =
                    served.failure.map(|error| format!("{title} decided no more: {error}"));
                failure.into_iter().chain(served.outputs.warning(&title)).collect()
            }
            Err(error) => vec![error.to_string()],
        }
    }

    fn end(&mut self) -> Option<JoinHandle<Served>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()
    }
}

/// Who ends early asks nobody what they have to say.
impl Drop for DecisionServer {
    fn drop(&mut self) {
        if let Some(thread) = self.end() {
            let _ = thread.join();
        }
    }
}

/// A server that fails decides no more: its connections fall back, and say so.
fn decide(
    reader: &ReportReader,
    pilots: &mut Pilots,
    latencies: &mut Latencies,
    over: &AtomicBool,
) -> Result<(), KernelError> {
    while !over.load(Ordering::Relaxed) {
        for report in reader.wait(LOOK)? {
            match pilots.hear(&report) {
                Answer::Decision(decision) => {
                    reader.decide(report.id, &decision)?;
                    latencies.note(monotonic_ns().saturating_sub(report.at_ns));
                }
                Answer::Nothing => {}
                Answer::Ended => reader.forget(report.id)?,
            }
        }
    }
    Ok(())
}

/// The clock of reports. It is there on every Linux.
fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
