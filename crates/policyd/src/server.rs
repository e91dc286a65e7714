//! Thread that decides for the connections of a registered policy module.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use skyhop_cc::Module;
use skyhop_host::error::{Context, HostError};
use skyhop_kernel::{DecisionMaps, KernelError, RegisteredModule, ReportReader};
use skyhop_model::POLICY_CC;
use skyhop_policy::Policy;
use tracing::{error, info, trace};

use crate::connections::{Connections, DecisionSummary, Latencies, ReportOutcome};

/// Longest wait for reports, after which the thread checks whether it has been asked to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Register `cc/policy.c` with these parameters, as `name` or under a generated name, and start to decide for its
/// connections.
///
/// The module stays registered until the first returned value is dropped; if that value refers to the file of a kernel
/// module, until all values made from the file are dropped.
///
/// # Errors
/// The policy is not a network, the name is taken, a parameter is wrong, or the machine or this build of skyhop cannot
/// load the module.
pub fn register_policy(
    card: &str,
    policy: &Policy,
    parameters: &[(String, String)],
    name: Option<&str>,
) -> Result<(RegisteredModule, DecisionServer), HostError> {
    if !policy.runs_anywhere() {
        return Err(HostError::Unsupported(format!(
            "{card}: a policy in Python decides in the simulator alone (skyhop sim); for live runs and \
             connections of the kernel, give its card an ONNX network"
        )));
    }
    let refused = |error: KernelError| HostError::of_congestion_control(card, &error);
    let module = Module::find(POLICY_CC).map_err(|error| refused(error.into()))?;
    let given: Vec<(&str, &str)> =
        parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let registration = match name {
        Some(name) => skyhop_kernel::register_as(module, &given, name),
        None => skyhop_kernel::register(module, &given),
    };
    let registration = registration.map_err(refused)?;
    let maps = registration.decisions().map_err(refused)?.ok_or_else(|| {
        HostError::Unsupported(format!("{card}: its kernel module takes no decisions from skyhop"))
    })?;
    let server = DecisionServer::start(maps, policy)?;
    info!(card, kernel_name = registration.kernel_name(), ?parameters, "policy registered");
    Ok((registration, server))
}

/// Handle of the thread that decides for the connections of a registered module; dropping it stops the thread.
#[derive(Debug)]
pub struct DecisionServer {
    title: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<DecisionSummary>>,
}

impl DecisionServer {
    /// Start the thread that decides.
    fn start(maps: DecisionMaps, policy: &Policy) -> Result<Self, HostError> {
        let stop = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&stop);
        let (title, mut latencies) = (policy.card.title.clone(), Latencies::new()?);
        let mut connections = Connections::new(policy.clone());
        let work = move || {
            let served = maps
                .read()
                .and_then(|reader| decide(&reader, &mut connections, &mut latencies, &over));
            let failure = served.err().map(|error| error.to_string());
            if let Some(failure) = &failure {
                error!(failure, "policy stops deciding; its connections use the base algorithm");
            }
            let (connections, outputs) = (connections.total(), connections.outputs());
            DecisionSummary { connections, outputs, latencies, failure }
        };
        let thread = thread::Builder::new().name("policy".to_owned()).spawn(work);
        let thread = Some(thread.context("cannot start a thread")?);
        Ok(Self { title, stop, thread })
    }

    /// Whether the thread has ended, for example because of an error.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stop the thread and return the totals of its decisions.
    ///
    /// # Errors
    /// The thread has panicked.
    pub fn join(mut self) -> Result<DecisionSummary, HostError> {
        let ended = self.request_stop().map(JoinHandle::join).and_then(Result::ok);
        ended.ok_or("a thread has panicked").context(&format!("{} stopped deciding", self.title))
    }

    /// Stop the thread and return warnings for the user: why it ended early, and outputs that were not usable.
    pub fn warnings(self) -> Vec<String> {
        let title = self.title.clone();
        match self.join() {
            Ok(served) => {
                let failure =
                    served.failure.map(|error| format!("{title} stopped deciding: {error}"));
                failure.into_iter().chain(served.outputs.warning(&title)).collect()
            }
            Err(error) => vec![error.to_string()],
        }
    }

    fn request_stop(&mut self) -> Option<JoinHandle<DecisionSummary>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()
    }
}

/// Stops the thread and discards its totals: an owner that returns early, such as on an error, does not need
/// them.
impl Drop for DecisionServer {
    fn drop(&mut self) {
        if let Some(thread) = self.request_stop() {
            let _ = thread.join();
        }
    }
}

/// Decide until `over` is set. After an error the connections fall back to the base algorithm and report a `fallback`.
fn decide(
    reader: &ReportReader,
    connections: &mut Connections,
    latencies: &mut Latencies,
    over: &AtomicBool,
) -> Result<(), KernelError> {
    while !over.load(Ordering::Relaxed) {
        for report in reader.wait(POLL_INTERVAL)? {
            match connections.handle_report(&report) {
                ReportOutcome::Decision(decision) => {
                    trace!(connection = report.id, ?decision, "decision");
                    reader.decide(report.id, &decision)?;
                    latencies.record(monotonic_ns().saturating_sub(report.at_ns));
                }
                ReportOutcome::NoDecision => {}
                ReportOutcome::Ended => reader.forget(report.id)?,
            }
        }
    }
    Ok(())
}

/// `CLOCK_MONOTONIC`, the clock of the reports, in ns. Reading it fails on no Linux.
fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
